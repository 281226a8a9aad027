"""Write the PTX of a kernel that counts its launches. Python 3.8 or newer."""

ENTRY = "canary"
SETTINGS = ("CUDA_LAUNCH_BLOCKING", "CUDA_INJECTION64_PATH", "CUDA_DEVICE_MAX_CONNECTIONS")
"""Variables that change how launches work; stated in the env line."""


def counting(rounds=1):
    """Return a module with ``canary(u64 to)``: one thread adds 1 to ``to[0]``, ``rounds`` times.

    Each addition goes through memory, so that no compiler joins them.
    """
    steps = "\n".join(
        "    ld.volatile.global.u32 %r1, [%rd1];\n"
        "    add.u32 %r1, %r1, 1;\n"
        "    st.volatile.global.u32 [%rd1], %r1;"
        for _ in range(rounds)
    )
    return f""".version 7.0
.target sm_52
.address_size 64

.visible .entry {ENTRY}(.param .u64 to)
{{
    .reg .b32 %r<2>;
    .reg .b64 %rd<2>;
    ld.param.u64 %rd1, [to];
    cvta.to.global.u64 %rd1, %rd1;
{steps}
    ret;
}}
"""
