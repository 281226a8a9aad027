"""Propose changes of the matrix: reviewed, approved by the people whom policies ask for, merged."""
