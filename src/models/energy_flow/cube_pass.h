#pragma once
// Buffers of one way through the cube and back. Only cube.cpp and cube_backward.cpp use it.

#include <memory>

#include "models/energy_flow/cube.h"

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
    tape::Value e, surface;
    std::vector<tensor::View> counters;            ///< T + 1: before each step and after the last
    std::vector<tensor::View> tables;              ///< T + 1 of stat [K,1,N,8]
    std::vector<tensor::View> moved;               ///< T of stat [K,1,N,8]
    tensor::View x;                                ///< real [K,1,T*N,72] (evaluation: one step)
    std::vector<tensor::View> h;                   ///< per layer, real [K,1,(T+1)*N,H] (evaluation: two windows in turn)
    std::vector<std::vector<tensor::View>> gates;  ///< per layer and step, real [K,1,N,4H]
    struct HeadBuffers {
        tensor::View saved, y;  ///< real [K,1,T*N,width]
        tensor::View dz;        ///< the same shape, on the way back
    };
    std::array<HeadBuffers, 2> heads;
    tensor::View u;        ///< real [K,1,N,4], of the step under way
    tensor::View scratch;  ///< stat [K,1,N,6H]
    // On the way back.
    tensor::View dtable;               ///< gradient of the table after the step under way
    std::vector<tensor::View> dh;      ///< per layer, stat [K,1,N,H]
    std::vector<tensor::View> dgates;  ///< per layer, real [K,1,T*N,4H]
    tensor::View du;                   ///< real [K,1,T*N,4]
    tensor::View dx;                   ///< real [K,1,N,72]
    bool training = false;

    /// Step t of a buffer of T * N rows; in evaluation every step uses the first.
    [[nodiscard]] tensor::View of_step(const tensor::View& all, std::int32_t t) const {
        return rows_of(all, training ? std::int64_t{t} * rows : 0, rows);
    }
    /// The state of a layer before step t.
    [[nodiscard]] tensor::View state_before(std::size_t layer, std::int32_t t) const {
        return rows_of(h[layer], (training ? std::int64_t{t} : t % 2) * rows, rows);
    }
    /// Rows of all steps, from window `first` on.
    [[nodiscard]] tensor::View all_steps(const tensor::View& all, std::int32_t first = 0) const {
        return rows_of(all, std::int64_t{first} * rows, steps * rows);
    }
};

}  // namespace millrace::models
