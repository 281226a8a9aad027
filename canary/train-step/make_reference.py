"""Write reference.json: the loss curves in fp64 on the CPU. Run it directly, with PyTorch."""

import json
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, os.pardir, "lib")]

import curves  # noqa: E402
import torch  # noqa: E402

SEEDS = (0,)


def main():
    """Train each model with each seed, and store the losses."""
    torch.use_deterministic_algorithms(True)
    cpu = torch.device("cpu")
    losses = {
        str(seed): {name: curves.train(name, seed, cpu, torch.float64)[0] for name in curves.MODELS}
        for seed in SEEDS
    }
    made = {"made_with": f"torch {torch.__version__}, CPU, fp64", "losses": losses}
    with open(curves.REFERENCE, "w", encoding="utf-8") as file:
        json.dump(made, file, indent=1)
        file.write("\n")


if __name__ == "__main__":
    main()
