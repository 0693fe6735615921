#include "data/stream/window_plan.h"

#include <algorithm>
#include <cmath>

#include "base/philox.h"

namespace millrace::data {
namespace {

// The order of blocks must not be keyed as a member's order inside a window is.
constexpr std::uint64_t kBlockKey = 0x626c6f636b73;

}  // namespace

std::uint32_t WindowPlan::windows() const { return (blocks() + window_blocks - 1) / window_blocks; }

std::uint32_t WindowPlan::rows_of_block(std::uint32_t block) const { return std::min(block_rows, rows - block * block_rows); }

std::vector<std::uint32_t> WindowPlan::blocks_of(std::uint32_t epoch, std::uint32_t window) const {
    const std::uint32_t whole = rows / block_rows, first = window * window_blocks,
                        end = std::min(blocks(), first + window_blocks);
    const base::Shuffle order = base::make_shuffle(seed ^ kBlockKey, epoch, whole);
    std::vector<std::uint32_t> found;
    for (std::uint32_t i = first; i < end; ++i) found.push_back(shuffle && i < whole ? base::shuffled_index(order, i) : i);
    return found;
}

void WindowPlan::divide(std::uint32_t most) {
    window_blocks = std::max(1u, most);
    const std::uint32_t count = std::max(1u, windows());
    window_blocks = std::max(1u, (blocks() + count - 1) / count);
}

WindowMix mix_of(const WindowPlan& plan, std::uint32_t epoch, std::span<const std::uint32_t> counts, std::size_t classes) {
    std::vector<double> all(classes), here(classes);
    for (std::size_t i = 0; i < counts.size(); ++i) all[i % classes] += counts[i];
    const bool several = std::ranges::count_if(all, [](double rows) { return rows > 0; }) > 1;
    WindowMix mix;
    for (std::uint32_t window = 0; window < plan.windows(); ++window) {
        std::ranges::fill(here, 0.0);
        double rows = 0;
        for (const std::uint32_t block : plan.blocks_of(epoch, window)) {
            for (std::size_t c = 0; c < classes; ++c) here[c] += counts[block * classes + c];
            rows += plan.rows_of_block(block);
        }
        for (std::size_t c = 0; c < classes; ++c) {
            mix.deviation = std::max(mix.deviation, std::abs(here[c] / rows - all[c] / plan.rows));
            if (several && here[c] == rows) mix.of_one_class += 1;
        }
    }
    return mix;
}

}  // namespace millrace::data
