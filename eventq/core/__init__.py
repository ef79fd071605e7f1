"""The core: what may be asked of a queue and what follows from it, without I/O, clock or chance."""
