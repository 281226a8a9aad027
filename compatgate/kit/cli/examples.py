"""Hold an example of each action whose module states none; only ``--help`` reads them."""

from __future__ import annotations

_EXAMPLES = """\
compatgate facts list
compatgate facts show cuda 12.4
compatgate facts verify --facts overlay.yaml
compatgate target list --label tier=prod
compatgate target show prod-a100 --format json
compatgate target delete prod-a100 --reason "its nodes are retired"
compatgate upgrade create prod-580 --target prod-a100 --driver 580.95.05 --soak 1h
compatgate upgrade list --state rolling
compatgate upgrade show prod-580
compatgate upgrade may-start prod-580 --wave 2 --by ansible
compatgate upgrade approve prod-580
compatgate upgrade retract prod-580
compatgate upgrade stop prod-580 --reason "jobs fail on rack 7"
compatgate upgrade resume prod-580 --reason "rack 7 is repaired"
compatgate upgrade roll-back prod-580 --reason "Xid 119 on three nodes"
compatgate upgrade leave-out prod-580 gpu-17 gpu-18 --reason "being repaired"
compatgate upgrade freeze year-end --from 2026-12-18 --to 2027-01-04 --owner platform
compatgate upgrade unfreeze year-end --reason "one fix must go out"
compatgate upgrade freezes --target prod-a100
compatgate upgrade known-good --format json
compatgate matrix import targets.yaml entries.yaml --dry-run
compatgate matrix delete legacy-ocr --kind waiver --reason "the job has moved"
compatgate matrix list --target prod-a100 --status blessed
compatgate matrix show torch24-cu124
compatgate matrix log --name torch24-cu124 --since 2026-11-03
compatgate matrix dependents torch24-cu124
compatgate matrix approvals --all
compatgate matrix refuse ap_52f3d1a2b4c6e8f0
compatgate matrix proposals --state open --target prod-a100
compatgate matrix approve pr_52f3d1a2b4c6e8f0
compatgate matrix retract pr_52f3d1a2b4c6e8f0
compatgate matrix merge pr_52f3d1a2b4c6e8f0
compatgate matrix close pr_52f3d1a2b4c6e8f0 -m "replaced by another"
compatgate matrix revert 42 --reason "jobs fail since"
compatgate matrix example > matrix.yaml
compatgate nodes list --target prod-a100 --stale yes
compatgate nodes drift --cluster east
compatgate nodes show gpu-17 --cluster east
compatgate nodes remove gpu-17 --cluster east --reason "retired"
compatgate nodes report --cluster east --every 5m
kubectl get nodes -o json | compatgate nodes import - --dry-run
compatgate notices incidents --kind drift
compatgate notices show 17
compatgate notices snooze 17 --for 4h --comment "repair at noon"
compatgate notices resolve 17 --comment "the driver is back"
compatgate notices reopen 17 --comment "it came back"
compatgate canary run --suite smoke --target prod-a100 --image registry.example/team/app:1.4 --wait
compatgate canary list --target prod-a100 --state failed
compatgate canary show run_52f3d1a2b4c6e8f0
compatgate canary logs run_52f3d1a2b4c6e8f0 -f
compatgate canary cancel run_52f3d1a2b4c6e8f0
compatgate canary rerun run_52f3d1a2b4c6e8f0
compatgate canary import dcgm.json --source acceptance --target prod-a100
compatgate canary sample --printed output.jsonl --workload gemm -o samples
compatgate canary hosts --gpu A100-SXM4-80GB
compatgate canary baselines list --workload gemm --state proposed
compatgate canary baselines show 17
compatgate canary baselines approve --all-of run_52f3d1a2b4c6e8f0
compatgate canary baselines refuse 17
compatgate canary fleet --suite smoke --target prod-a100 --top 5
compatgate canary drift --suite smoke --target prod-a100
compatgate canary judge baseline.jsonl candidate.jsonl --metric gemm.tflops --better higher
compatgate canary fetch registry.example/team/canary:1.0 -o canary/ours
compatgate canary lint canary/ours --strict
compatgate canary read output.txt --adapter nccl-tests
compatgate canary suites dl-core
compatgate canary workloads gemm --format json
compatgate hook sign --secret ci=ci.key --url https://gate.example/hooks/generic question.json
compatgate bundle export -o gate.bundle
compatgate bundle pull https://gate.example --to gate.bundle --key gate.pub --every 5m
compatgate bundle show gate.bundle --key gate.pub
compatgate token create --name ci --scope read,gate --expires 90d
compatgate token rotate ci --overlap 1d
compatgate token list --all
compatgate token revoke ci
compatgate audit verify --full
compatgate audit delete --older-than 400d
compatgate audit list --action matrix.import --since 2026-11-03
compatgate audit decisions --target prod-a100 --verdict fail
compatgate db upgrade
compatgate db status --format json
compatgate db path
compatgate db backup gate.backup
compatgate db restore gate.backup --database restored.db
compatgate db verify gate.backup
compatgate db prune --run-logs-older-than 90d --dry-run
"""


def list_examples(prog: str, epilog: str) -> str:
    """Return the examples of an action as a section of its help; empty if the epilog has one."""
    if f"{prog} " in epilog or epilog.rstrip().endswith(prog):
        return ""
    found = [line for line in _EXAMPLES.splitlines() if f"{prog} " in f"{line} "]
    return "\n".join(["examples:", *(f"  {line}" for line in found), ""]) if found else ""
