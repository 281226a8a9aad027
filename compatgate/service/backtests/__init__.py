"""Backtest a change of the matrix on recorded questions, without storing the change."""
