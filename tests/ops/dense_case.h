#pragma once
// Shapes and settings of dense layers, and a case of each of their records.

#include <fmt/format.h>

#include "op_case.h"
#include "ops/dense/dense.h"

namespace millrace::ops::cases::dense {

struct Shape {
    int k, g, b, in, out;
    [[nodiscard]] std::string text() const { return fmt::format("K{}_G{}_B{}_In{}_Out{}", k, g, b, in, out); }
};
struct Config {
    Norm norm;
    Activation activation;
    float dropout;
    [[nodiscard]] std::string text() const {
        static constexpr const char* kNorms[] = {"plain", "batch_train", "batch_eval"};
        static constexpr const char* kActivations[] = {"none", "relu", "gelu", "tanh", "sigmoid"};
        return fmt::format("{}_{}{}", kNorms[static_cast<int>(norm)], kActivations[static_cast<int>(activation)],
                           dropout > 0 ? "_drop" : "");
    }
    [[nodiscard]] DenseParams params() const { return {norm, activation, dropout, 1e-5f, 0.1f, 17}; }
    // relu makes zeros of its own, and which side of 0 a sum falls on is a matter of rounding.
    [[nodiscard]] bool zeros_are_dropped() const { return dropout > 0 && activation != Activation::relu; }
};

inline constexpr Activation kActivations[] = {Activation::none, Activation::relu, Activation::gelu, Activation::tanh,
                                              Activation::sigmoid};
inline constexpr Shape kSmall{2, 3, 7, 13, 5};
inline constexpr Config kHidden{Norm::batch_train, Activation::relu, 0.2f};
inline constexpr Config kHead{Norm::none, Activation::gelu, 0.1f};
inline constexpr Config kLinear{Norm::none, Activation::none, 0};
inline constexpr Shape kShapes[] = {
    {1, 1, 1, 1, 1},
    {1, 1, 2, 3, 5},
    {1, 1, 5, 17, 31},
    {3, 1, 32, 24, 16},
    {1, 2, 112, 19, 8},
    {1, 1, 128, 33, 12},
    {1, 1, 256, 8, 9},
    {1, 1, 300, 7, 11},
    {1, 4, 32, 40, 64},
    {2, 4, 32, 64, 48},
    {1, 1, 3, 129, 67},
    {4, 1, 17, 16, 10},
    // clusters of two and four, and wide strips, on CUDA; whole steps at larger sizes are in tests/models
    {1, 1, 100, 520, 9},
    {1, 1, 131, 8, 9},
    {1, 1, 193, 8, 9},
    {1, 1, 8, 8, 1100}};

/// Just enough matrices for each of the wide tiles on CUDA, in groups since every member is also run alone. Rows, columns and
/// summed elements end inside of tiles, in some inside of 16 bytes.
inline constexpr Shape kMany[] = {{2, 24, 37, 24, 40}, {2, 20, 100, 8, 72}, {1, 70, 100, 72, 64},
                                  {2, 50, 33, 10, 17}, {1, 60, 250, 8, 33}, {2, 70, 100, 8, 16}};

/// Batches around the borders of strips, blocks and clusters; the one of 100 rows has clusters of two in f32.
inline constexpr Shape kBatches[] = {{1, 1, 1, 40, 24},    {2, 1, 2, 12, 9},     {1, 2, 63, 100, 24}, {1, 1, 64, 20, 40},
                                     {1, 2, 65, 36, 8},    {1, 1, 128, 260, 17}, {2, 1, 255, 13, 8},  {1, 1, 256, 300, 16},
                                     {1, 6, 100, 800, 64}, {1, 6, 128, 33, 64}};

OpCase forward(const Shape& s, const Config& config, const std::string& note = "");
OpCase backward(const Shape& s, const Config& config, const std::string& note = "");
OpCase dgrad(const Shape& s, const std::string& note);
OpCase wgrad(const Shape& s, const std::string& note);

inline void window(OpCase& c, int slot, Layout layout) { c.slots[static_cast<std::size_t>(slot)].layout = layout; }

}  // namespace millrace::ops::cases::dense
