"""What runs inside the interpreter that is asked; needs Python 3.8, and imports its torch."""

from __future__ import annotations

MARK = b"compatgate-answer:"


def source() -> str:
    """The program, as text for ``python -c``; it prints the mark and one line of JSON."""
    return _SOURCE


_SOURCE = """\
import json, re, sys
answer = {"python": "%d.%d.%d" % sys.version_info[:3], "packages": {}, "conda": [], "torch": None,
          "notes": [], "places": []}
try:
    import sysconfig
    if sysconfig.get_config_var("Py_GIL_DISABLED"):
        answer["python"] += "t"
    from importlib import metadata
    for found in metadata.distributions():
        name = found.metadata["Name"]
        if name:
            name = re.sub("[-_.]+", "-", name).lower()
            answer["packages"].setdefault(name, found.version)
            place = str(found.locate_file(""))
            if place not in answer["places"]:
                answer["places"].append(place)
            if (found.read_text("INSTALLER") or "").strip() == "conda":
                answer["conda"].append(name)
except Exception as error:
    answer["notes"].append("package metadata cannot be read: %s" % error)

def ask(what, question):
    try:
        return question()
    except Exception as error:
        answer["notes"].append("%s cannot be asked: %s" % (what, error))

def loaded():
    import torch
    found = {"version": torch.__version__, "cuda": torch.version.cuda}
    if torch.version.cuda:
        found["cudnn"] = ask("cuDNN", torch.backends.cudnn.version)
        nccl = ask("NCCL", torch.cuda.nccl.version)
        found["nccl"] = ".".join(map(str, nccl)) if isinstance(nccl, tuple) else nccl
        found["arch"] = ask("GPU code", lambda: (torch._C._cuda_getArchFlags() or "").split())
    return found

if "torch" in answer["packages"]:
    answer["torch"] = ask("torch", loaded)
sys.stdout.flush()
print("\\ncompatgate-answer:\\n" + json.dumps(answer))
"""
