#pragma once
// Buffers of one way through the cube and back. Only cube.cpp and cube_backward.cpp use it.

#include <memory>

#include "models/energy_flow/cube.h"
#include "models/energy_flow/ops/flow.h"

namespace millrace::models {

constexpr std::int32_t kNeuronWidth = ops::kNeuronFeatures + 1;  ///< features and energy
constexpr std::int32_t kInputColumns = 72;  ///< the same with room to the next multiple of eight: rows of 16-byte steps

/// Rows [begin, begin + count) of a view.
inline tensor::View rows_of(tensor::View view, std::int64_t begin, std::int32_t count) {
    view.offset += begin * view.stride_row;
    view.rows = count;
    return view;
}

struct Cube::Pass {
    std::int32_t rows = 0, steps = 0;  ///< N, T
    bool training = false;
    Recompute recompute = Recompute::none;
    tape::Value e, surface;
    std::vector<tensor::View> counters;            ///< T + 1: before each step and after the last
    std::vector<tensor::View> tables;              ///< T + 1 of stat [K,1,N,8]
    std::vector<tensor::View> moved;               ///< T of stat [K,1,N,8]
    tensor::View x;                                ///< real [K,1,T*N,72]; absent unless keeps_inputs()
    std::vector<tensor::View> h;                   ///< per layer, real [K,1,(T+1)*N,H] (evaluation: two windows in turn)
    std::vector<std::vector<tensor::View>> gates;  ///< per layer and step, real [K,1,N,4H]; empty unless keeps_gates()
    struct HeadBuffers {
        tensor::View saved, y;  ///< real [K,1,T*N,width]; absent unless keeps_inputs()
    };
    std::array<HeadBuffers, 2> heads;
    tensor::View scratch;  ///< stat [K,1,N,6H], of every GRU layer in turn: one on the way there, another on the way back

    // On the way back.
    tensor::View dtable;           ///< gradient of the table after the step under way
    std::vector<tensor::View> dh;  ///< per layer, stat [K,1,N,H]
    tensor::View dx;               ///< real [K,1,N,72]
    tensor::View gates_again;      ///< real [K,1,N,4H], of every GRU layer in turn; absent when keeps_gates()
    tensor::View state_again;      ///< real [K,1,N,H], written beside it and not read
    using Pairs = std::vector<std::pair<tensor::View, tensor::View>>;
    Pairs reach_dh;  ///< products that belong to the gradient of the next cell's state: from the heads or the layer above
    std::vector<Pairs> waiting;  ///< per layer: the same from the step after
    /// Steps that are left out together when no flow is alive at their first; on the way back also those whose weight gradients
    /// are one product per matrix. From the first on.
    std::vector<std::pair<std::int32_t, std::int32_t>> chunks;
    /// Consecutive steps whose weight gradients are one product per matrix.
    struct Chunk {
        std::int32_t first = 0, count = 0;
        tensor::View x;                     ///< real [K,1,count*N,72]
        std::array<tensor::View, 2> y, dz;  ///< real [K,1,count*N,width] of each head
        tensor::View du;                    ///< real [K,1,count*N,4]
        std::vector<tensor::View> dgates;   ///< per layer, real [K,1,count*N,4H]
    } chunk;

    [[nodiscard]] bool keeps_gates() const { return training && recompute == Recompute::none; }
    [[nodiscard]] bool keeps_inputs() const { return training && recompute != Recompute::step; }
    /// Step t of a buffer of T * N rows.
    [[nodiscard]] tensor::View of_step(const tensor::View& all, std::int32_t t) const {
        return rows_of(all, std::int64_t{t} * rows, rows);
    }
    /// Step t of a buffer of the chunk.
    [[nodiscard]] tensor::View of_chunk(const tensor::View& all, std::int32_t t) const { return of_step(all, t - chunk.first); }
    /// The state of a layer before step t.
    [[nodiscard]] tensor::View state_before(std::size_t layer, std::int32_t t) const {
        return of_step(h[layer], training ? t : t % 2);
    }
    /// The steps of the chunk in a buffer of T * N rows or more, from window `shift` on.
    [[nodiscard]] tensor::View chunk_of(const tensor::View& all, std::int32_t shift = 0) const {
        return rows_of(all, std::int64_t{chunk.first + shift} * rows, chunk.count * rows);
    }
};

}  // namespace millrace::models
