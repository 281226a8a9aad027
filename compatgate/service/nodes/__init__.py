"""Keep what machines report, and roll drivers out in waves."""
