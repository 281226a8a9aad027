"""Make a kernel whose result depends on its text, as hand-written PTX and as CUDA C++.

Python 3.8 or newer.
"""

MULTIPLIER, INCREMENT = 1664525, 1013904223
"""Constants of the generator in "Numerical Recipes", modulo 2^32: each step depends on the last."""
ENTRY = "canary"
_MASK = 0xFFFFFFFF


def kernel(isa, target, nonce, rounds):
    """Return a module with one kernel, ``canary(u64 to)``: ``to[i] = f(i)`` for its one block.

    Args:
        isa: PTX ISA version, ``7.0``.
        target: ``sm_52``; the driver compiles for the actual GPU.
        nonce: 32 bits that the result depends on, so that no cache has the text.
        rounds: length of the program; rounds are written out, one after the other.
    """
    steps = "\n".join(
        f"    mad.lo.u32 %r1, %r1, {MULTIPLIER}, {(INCREMENT + step) & _MASK};\n"
        f"    shr.u32 %r2, %r1, {step % 15 + 1};\n"
        f"    xor.b32 %r1, %r1, %r2;"
        for step in range(rounds)
    )
    return f""".version {isa}
.target {target}
.address_size 64

.visible .entry {ENTRY}(.param .u64 to)
{{
    .reg .b32 %r<4>;
    .reg .b64 %rd<4>;
    ld.param.u64 %rd1, [to];
    cvta.to.global.u64 %rd1, %rd1;
    mov.u32 %r3, %tid.x;
    mul.wide.u32 %rd2, %r3, 4;
    add.s64 %rd1, %rd1, %rd2;
    xor.b32 %r1, %r3, {nonce & _MASK};
{steps}
    st.global.u32 [%rd1], %r1;
    ret;
}}
"""


def source(nonce, rounds):
    """Return the same kernel in CUDA C++, for a compiler of the stack."""
    steps = "\n".join(
        f"    value = value * {MULTIPLIER}u + {(INCREMENT + step) & _MASK}u;\n"
        f"    value ^= value >> {step % 15 + 1};"
        for step in range(rounds)
    )
    return f"""extern "C" __global__ void {ENTRY}(unsigned int *to)
{{
    unsigned int value;
    value = threadIdx.x ^ {nonce & _MASK}u;
{steps}
    to[threadIdx.x] = value;
}}
"""


def expected(nonce, rounds, threads):
    """Return the kernel's expected result, computed on the host."""
    results = []
    for thread in range(threads):
        value = thread ^ (nonce & _MASK)
        for step in range(rounds):
            value = (value * MULTIPLIER + ((INCREMENT + step) & _MASK)) & _MASK
            value ^= value >> (step % 15 + 1)
        results.append(value)
    return results
