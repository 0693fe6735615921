#pragma once
// What the kernels of the energy flow share: which rows are alive, and one thread per row.

#include "models/energy_flow/ops/flow.h"
#include "ops/cuda/device.cuh"

namespace millrace::ops::cuda {

/// A flow table with the counters that say whether a member has stopped.
struct Flows {
    Mat<const float> table;
    Mat<const std::int32_t> counters;
    __device__ bool alive(int k, int row) const {
        return table.row(k, 0, row)[flow::active] != 0 && counters.row(k, 0, 0)[flow_counter::stopped] == 0;
    }
};

constexpr int kFlowThreads = 128;
__device__ inline int flow_row() { return static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x); }
/// One thread per row, members along z.
inline dim3 flow_grid(const tensor::Operand& table) { return dim3(blocks_for(table.rows, kFlowThreads), 1, table.k); }

}  // namespace millrace::ops::cuda
