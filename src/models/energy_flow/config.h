#pragma once
// Sizes and rules of an energy flow model: recurrent flows carry energy from the middle plane of a W x H x D cube to its two
// outer planes and scatter it on a surface of W x H cells.

#include <cmath>
#include <cstdint>
#include <utility>
#include <vector>

#include "base/result.h"

namespace millrace::models {

/// What a step leaves behind for the backward pass through time. `none`: everything. `gates`: all but the gates of the GRU
/// layers. `step`: states, flow tables and moves alone. The rest is computed again when the backward pass comes to the step.
enum class Recompute : std::uint8_t { none, gates, step };
const char* name_of(Recompute recompute);
enum class MapperKind : std::uint8_t { compact, deep };

/// Sizes of the text bridge (models/energy_flow/text_bridge.h).
struct TextBridgeConfig {
    bool enabled = false;
    std::int32_t width = 256, layers = 2, heads = 8, inner = 512;
    std::int32_t vocabulary = 2000;  ///< tokens that the data's text is cut into, at most
    std::int32_t max_tokens = 128;   ///< longer sentences are cut
    double encode_weight = 1, decode_weight = 1;
};

struct EnergyFlowConfig {
    std::int32_t width = 20, height = 20, depth = 10;
    std::int32_t hidden = 256, layers = 2;
    std::int32_t embedding = 768;
    std::int32_t steps = 0;      ///< 0: half the depth
    double headroom = 0;         ///< spare rows for spawned flows, as a share of the cells
    double spawn_length = 0.5;   ///< a longer stride (the cube's edge is 2) leaves children behind
    std::int32_t max_spawn = 1;  ///< children of one stride
    double arrive = 0.6;         ///< share of the steps that an undisturbed flow needs
    double noise = 0.1;          ///< of a move in training, in cells
    MapperKind mapper = MapperKind::compact;
    double surface_scale = 0.3;  ///< root mean square of a target's cells
    bool skip_arrived = true;    ///< steps in which no flow is alive are left out, in time too, an eighth of them or so at once
    bool early_stop = false;
    std::int32_t min_steps = 0;  ///< before a stop; 0: the share `arrive` of the steps
    double stop_at = 0.95;       ///< share of the flows that have arrived
    std::int32_t patience = 3;   ///< steps without another arrival
    Recompute recompute = Recompute::none;
    /// Bytes of gate gradients that may wait for the products of the weight gradients; at least one step's are kept. 0: 4 GiB,
    /// and no more than a quarter of the steps when something is computed again.
    std::int64_t gradient_budget = 0;
    TextBridgeConfig text_bridge = {};

    [[nodiscard]] std::int32_t cells() const { return width * height; }
    [[nodiscard]] std::int32_t step_count() const { return steps > 0 ? steps : depth / 2; }
    [[nodiscard]] std::int32_t least_steps() const {
        return min_steps > 0 ? min_steps : static_cast<std::int32_t>(std::ceil(arrive * step_count()));
    }
    /// Stride along z: half a step early, so that rounding never decides an arrival.
    [[nodiscard]] double drift() const { return 1 / (arrive * step_count() - 0.5); }
    /// Rows of the flow table for `samples` samples.
    [[nodiscard]] std::int32_t rows(std::int32_t samples) const {
        return static_cast<std::int32_t>(static_cast<double>(samples) * cells() * (1 + headroom));
    }
    /// Steps that are skipped together when no flow is alive at their first, and whose weight gradients are one product per
    /// matrix: first step and the one behind the last. `step_bytes`: of the gate gradients of one step.
    [[nodiscard]] std::vector<std::pair<std::int32_t, std::int32_t>> chunks(std::int32_t rows, bool training,
                                                                            std::int64_t step_bytes) const;
    [[nodiscard]] bool spawns() const { return headroom > 0 && max_spawn > 0; }
};

/// Refuses shapes that cannot be built; the message names the recipe key.
base::Status validate(const EnergyFlowConfig& config);
/// Refuses a batch whose flows do not all have a row, or have more rows than a program can count.
base::Status check_capacity(const EnergyFlowConfig& config, std::int32_t samples);

}  // namespace millrace::models
