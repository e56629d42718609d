"""Train many small clients at once with the SIMD lanes as the batch.

A convolution with 1, 10 or 20 channels cannot fill a 16-wide register with channels, so the usual kernels spend most of
it on padding. Here the innermost axis of every array is a lane that holds an independent problem, a client or an
example, and each instruction works on 16 of them whatever the layer's shape. The kernels are native, release the GIL
and use one thread each, so that one thread per core scales. They are optional: ``network.available`` says whether this
installation has them.
"""
