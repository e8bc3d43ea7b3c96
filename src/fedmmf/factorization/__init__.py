"""Factorization of the masked ratings: two solvers behind one contract.

`sgd` is the paper's, `vb` the variational one. Each has a file with its equations in plain numpy
(what a party and the server compute) and a file with kernels that compute the same for all parties
at once.
"""
