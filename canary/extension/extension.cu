// A custom extension as applications have them: a kernel, the runtime that launches it, and the same
// on the host. Compiled where it runs, for the architectures of the stack.
#include <cuda_runtime.h>

#include <cstdint>

namespace {

constexpr int kTile = 16;

// c = a b for square matrices whose side is a multiple of the tile.
__global__ void multiply(const float *a, const float *b, float *c, int side) {
  __shared__ float left[kTile][kTile], right[kTile][kTile];
  const int row = blockIdx.y * kTile + threadIdx.y;
  const int column = blockIdx.x * kTile + threadIdx.x;
  float sum = 0.0f;
  for (int at = 0; at < side; at += kTile) {
    left[threadIdx.y][threadIdx.x] = a[row * side + at + threadIdx.x];
    right[threadIdx.y][threadIdx.x] = b[(at + threadIdx.y) * side + column];
    __syncthreads();
    for (int k = 0; k < kTile; ++k) sum = fmaf(left[threadIdx.y][k], right[k][threadIdx.x], sum);
    __syncthreads();
  }
  c[row * side + column] = sum;
}

struct Buffers {
  float *a = nullptr, *b = nullptr, *c = nullptr;
  ~Buffers() { cudaFree(a), cudaFree(b), cudaFree(c); }
};

cudaError_t on_device(const float *a, const float *b, float *c, int side, int repeat, float *ms) {
  const size_t bytes = sizeof(float) * side * side;
  Buffers device;
  cudaError_t error;
  if ((error = cudaMalloc(&device.a, bytes))) return error;
  if ((error = cudaMalloc(&device.b, bytes))) return error;
  if ((error = cudaMalloc(&device.c, bytes))) return error;
  if ((error = cudaMemcpy(device.a, a, bytes, cudaMemcpyHostToDevice))) return error;
  if ((error = cudaMemcpy(device.b, b, bytes, cudaMemcpyHostToDevice))) return error;
  cudaEvent_t begin, end;
  if ((error = cudaEventCreate(&begin))) return error;
  if ((error = cudaEventCreate(&end))) return error;
  const dim3 threads(kTile, kTile), blocks(side / kTile, side / kTile);
  for (int i = 0; i < repeat && !error; ++i) {
    cudaEventRecord(begin);
    multiply<<<blocks, threads>>>(device.a, device.b, device.c, side);
    if ((error = cudaGetLastError())) break;
    cudaEventRecord(end);
    if ((error = cudaEventSynchronize(end))) break;
    error = cudaEventElapsedTime(ms + i, begin, end);
  }
  cudaEventDestroy(begin);
  cudaEventDestroy(end);
  return error ? error : cudaMemcpy(c, device.c, bytes, cudaMemcpyDeviceToHost);
}

}  // namespace

extern "C" {

// Multiplies `repeat` times and writes the milliseconds of each; null or what went wrong.
const char *canary_device(const float *a, const float *b, float *c, int side, int repeat,
                          float *ms) {
  const cudaError_t error = on_device(a, b, c, side, repeat, ms);
  return error == cudaSuccess ? nullptr : cudaGetErrorName(error);
}

// The same on the host, in the kernel's order of sums.
void canary_host(const float *a, const float *b, float *c, int side) {
  for (int row = 0; row < side; ++row)
    for (int column = 0; column < side; ++column) {
      float sum = 0.0f;
      for (int k = 0; k < side; ++k) sum = __builtin_fmaf(a[row * side + k], b[k * side + column], sum);
      c[row * side + column] = sum;
    }
}

// Version of the runtime that is loaded, 12040 for 12.4.
int canary_runtime() {
  int version = 0;
  return cudaRuntimeGetVersion(&version) == cudaSuccess ? version : 0;
}
}
