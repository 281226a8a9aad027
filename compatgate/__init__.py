"""compatgate: may this GPU stack run on that target?"""

__version__ = "0.1.0"
