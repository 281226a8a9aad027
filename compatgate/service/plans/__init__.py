"""Plan upgrades of drivers and CUDA on a target."""
