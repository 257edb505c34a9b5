"""Tensor-core matrix multiplication from descriptors."""
