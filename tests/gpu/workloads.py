# SPDX-License-Identifier: Apache-2.0
"""What the frameworks do, one function each: `workloads.py NAME LIMIT_BYTES` runs one inside a slice of that size and
fails where the limit, the view or the recovery is not as it should be."""

import os
import sys

GIB = 1 << 30


def must_not_fit(allocate, error):
    try:
        allocate()
    except error as refused:
        print("refused:", str(refused).splitlines()[0][:120])
        return
    raise AssertionError("more than the limit was given")


def torch_allocator(limit):
    """Sees the limit, gets most of it and not more, frees and gets it again, and computes."""
    import torch
    free, total = torch.cuda.mem_get_info()
    assert total == limit and free <= total, (free, total, limit)
    for _ in range(3):
        kept = [torch.empty(GIB // 4, dtype=torch.uint8, device="cuda") for _ in range(int(free * 0.8) // (GIB // 4))]
        must_not_fit(lambda: torch.empty(limit, dtype=torch.uint8, device="cuda"), torch.cuda.OutOfMemoryError)
        del kept
        torch.cuda.empty_cache()
        torch.cuda.synchronize()
    assert torch.cuda.mem_get_info()[0] >= free - 64 * (1 << 20), "memory that was freed is not free"
    a = torch.ones(1024, 1024, device="cuda")
    assert float((a @ a)[0, 0]) == 1024.0


def torch_graphs(limit):
    """A captured graph, allocations inside it included, replays under the limits."""
    import torch
    static = torch.ones(512, 512, device="cuda")
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            result = (static @ static).relu()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = (static @ static).relu()
    for i in range(1, 200):
        static.fill_(i)
        graph.replay()
    torch.cuda.synchronize()
    assert abs(float(result[0, 0]) / (512.0 * 199 * 199) - 1) < 1e-3
    assert torch.cuda.mem_get_info()[1] == limit


def torch_train_fork(limit):
    """Some training with a forked loader."""
    import torch
    from torch.utils.data import DataLoader, TensorDataset
    data = DataLoader(TensorDataset(torch.randn(512, 64), torch.randint(0, 8, (512,))), batch_size=64, num_workers=2)
    model = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 8)).cuda()
    optimizer = torch.optim.Adam(model.parameters())
    losses = []
    for _ in range(5):
        for x, y in data:
            optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(model(x.cuda()), y.cuda())
            loss.backward()
            optimizer.step()
        losses.append(float(loss))
    assert losses[-1] < losses[0] and torch.cuda.mem_get_info()[1] == limit


def cupy_pool(limit):
    import cupy
    free, total = cupy.cuda.runtime.memGetInfo()
    assert total == limit, (total, limit)
    pool = cupy.get_default_memory_pool()
    for _ in range(3):
        kept = cupy.zeros(int(free * 0.7), dtype=cupy.uint8)
        must_not_fit(lambda: cupy.zeros(limit, dtype=cupy.uint8), cupy.cuda.memory.OutOfMemoryError)
        del kept
        pool.free_all_blocks()
    assert int(cupy.arange(1000).sum()) == 499500


def jax_allocator(limit):
    import jax
    import jax.numpy as jnp
    x = jnp.ones((2048, 2048))
    assert float((x @ x)[0, 0]) == 2048.0
    must_not_fit(lambda: jax.block_until_ready(jnp.zeros((limit,), dtype=jnp.uint8)), Exception)
    assert float((x @ x)[0, 0]) == 2048.0


def numba_arrays(limit):
    """Sees the limit, is refused more, and a kernel that numba compiles computes."""
    import numpy
    from numba import cuda
    assert cuda.current_context().get_memory_info().total == limit
    must_not_fit(lambda: cuda.device_array(limit, dtype=numpy.uint8), Exception)

    @cuda.jit
    def double(x):
        i = cuda.grid(1)
        if i < x.size:
            x[i] *= 2

    x = cuda.to_device(numpy.arange(1000.0))
    double[8, 128](x)
    assert (x.copy_to_host() == 2 * numpy.arange(1000.0)).all()


def nccl_rank(limit):
    """One of two processes of a sum over NCCL; each in the slice of both cards."""
    import torch
    import torch.distributed as dist
    rank = int(os.environ["RANK"])
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl")
    x = torch.full((1 << 20,), float(rank + 1), device="cuda")
    for _ in range(10):
        y = x.clone()
        dist.all_reduce(y)
        assert float(y[0]) == 3.0
    assert torch.cuda.mem_get_info()[1] == limit
    dist.destroy_process_group()


if __name__ == "__main__":
    globals()[sys.argv[1]](int(sys.argv[2]))
