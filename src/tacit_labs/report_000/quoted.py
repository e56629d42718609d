"""What the report says. These values are quoted, never measured here; everything else on its page is."""

from __future__ import annotations

DOCUMENT = "000_040aa826a603186f.txt"

# Not in the report: the settings of its author's public code, to which it refers (options.py, dp_tune.py)
REPOSITORY = "ltzheng/data-privacy"
CLIENTS, LOCAL_EPOCHS, BATCH, RATE, MOMENTUM = 5, 3, 64, 0.015, 0.5

# differential privacy
CLIP, SIGMA = 0.5, 0.05  # its defaults
ROUNDS = 6  # "epochs"
CONVERGES = '"The accuracy converges near 96% after training 6 epochs"'
CLIPS = (0.1, 0.3, 0.5, 0.9)  # "C in [0.1, 0.9]"; the steps are those of dp_tune.py
SIGMAS = (0.1, 0.2, 0.3, 0.4)  # "sigma in [0.1, 0.4]"
GRID_ROUNDS = 2
DELTA = 1e-3
ON_SIGMA = '"large sigma will harm the train/test accuracy"'
ON_CLIP = '"large C will reduce the train/test accuracy"'

# Paillier
KEY_BITS = 1024  # of the nine panels
LENGTHS = tuple(range(10, 1001, 10))
EXPERIMENTS = 3
ON_LENGTH = '"As the bits increase, the time increases"'
ON_DROP = '"The drop of decryption time near 200 bits may result from certain optimization in gmpy2"'
ENCRYPTS, DECRYPTS = 240.0, 70.0  # seconds, "each"
ENCRYPTED_EPOCH, PLAIN_EPOCH = 1600.0, 36.0
MACHINE = "10 Intel(R) Xeon(R) Silver 4210 CPUs and 1 Nvidia GeForce RTX 2080Ti GPU"
