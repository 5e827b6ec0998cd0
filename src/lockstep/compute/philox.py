"""The constants of Philox4x32-10, which its eager form and its kernel share."""

# From the paper (Salmon and others, 2011); the tests compare with its published answers.
MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
WEYL = (0x9E3779B9, 0xBB67AE85)
ROUNDS = 10
