/* A stand-in of libnvrtc.so: writes the hand-written form of the kernel whose source it is given.
 *
 * It shows that the program calls what nvrtc.h declares, in its order, and that the PTX's version is
 * its compiler's; it shows nothing of a compiler. Compile-time settings: CUDA (12040), ISA (84), OLDEST
 * (the oldest architecture that it knows, 50).
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct program { char *source; char ptx[1 << 16]; char log[256]; };

int nvrtcVersion(int *major, int *minor) {
    *major = CUDA / 1000; *minor = CUDA % 1000 / 10; return 0; }
int nvrtcGetNumSupportedArchs(int *n) { *n = 2; return 0; }
int nvrtcGetSupportedArchs(int *all) { all[0] = OLDEST; all[1] = OLDEST + 30; return 0; }
int nvrtcCreateProgram(struct program **p, const char *source, const char *name, int headers,
                       const char **texts, const char **names) {
    if (!source || !name || headers || texts || names) return 3;
    *p = calloc(1, sizeof **p);
    (*p)->source = strdup(source);
    return 0;
}
int nvrtcDestroyProgram(struct program **p) { free((*p)->source); free(*p); *p = 0; return 0; }
int nvrtcCompileProgram(struct program *p, int n, const char **options) {
    unsigned arch, a, b;
    if (n != 1 || sscanf(options[0], "--gpu-architecture=compute_%u", &arch) != 1) return 5;
    if (arch != OLDEST && arch != OLDEST + 30) { strcpy(p->log, "no such architecture"); return 6; }
    if (!strstr(p->source, "extern \"C\" __global__ void canary(")) return 6;
    char *to = p->ptx;
    to += sprintf(to, ".version %d.%d\n.target sm_%u\n.address_size 64\n"
                  ".visible .entry canary(.param .u64 to)\n{\n", ISA / 10, ISA % 10, arch);
    for (char *at = p->source; at; at = strchr(at, '\n')) {
        char line[128] = "";
        while (*at == '\n' || *at == ' ') at++;
        strncpy(line, at, sizeof line - 1);
        if (sscanf(line, "value = threadIdx.x ^ %uu;", &a) == 1)
            to += sprintf(to, "    xor.b32 %%r1, %%r3, %u;\n", a);
        else if (sscanf(line, "value = value * %uu + %uu;", &a, &b) == 2)
            to += sprintf(to, "    mad.lo.u32 %%r1, %%r1, %u, %u;\n", a, b);
        else if (sscanf(line, "value ^= value >> %u;", &a) == 1)
            to += sprintf(to, "    shr.u32 %%r2, %%r1, %u;\n    xor.b32 %%r1, %%r1, %%r2;\n", a);
    }
    sprintf(to, "}\n");
    return 0;
}
int nvrtcGetPTXSize(struct program *p, size_t *n) { *n = strlen(p->ptx) + 1; return 0; }
int nvrtcGetPTX(struct program *p, char *to) { strcpy(to, p->ptx); return 0; }
int nvrtcGetProgramLogSize(struct program *p, size_t *n) { *n = strlen(p->log) + 1; return 0; }
int nvrtcGetProgramLog(struct program *p, char *to) { strcpy(to, p->log); return 0; }
