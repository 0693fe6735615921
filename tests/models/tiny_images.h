#pragma once
// A small image set in memory: one random pattern per class, with noise on top. Learnable, deterministic.

#include <memory>

#include "base/philox.h"
#include "data/sample_set.h"

namespace millrace::testing {

inline void add_tiny_images(data::SampleSet& set, std::uint32_t count, std::uint32_t stream) {
    const auto pixels = static_cast<std::uint32_t>(set.width), classes = static_cast<std::uint32_t>(set.preparation.classes);
    for (std::uint32_t i = 0; i < count; ++i) {
        const std::uint32_t label = base::random_bits(7, 0, stream, 1, i) % classes;
        set.labels.push_back(static_cast<std::int32_t>(label));
        for (std::uint32_t p = 0; p < pixels; ++p) {
            const std::uint32_t pattern = base::random_bits(7, 0, 0, 2, label * pixels + p) % 160;
            const std::uint32_t noise = base::random_bits(7, 0, stream, 3, std::uint64_t{i} * pixels + p) % 96;
            set.bytes.push_back(static_cast<std::uint8_t>(pattern + noise));
        }
    }
    set.count += static_cast<std::int32_t>(count);
}

/// `train` images, of which a tenth validates, and `test` more behind them.
inline std::shared_ptr<const data::SampleSet> tiny_set(std::uint32_t train, std::uint32_t test, std::int32_t side = 5,
                                                       std::int32_t classes = 3) {
    data::SampleSet set;
    set.name = "tiny";
    set.unit = "images";
    set.preparation.shape = {side, side, 1};
    set.preparation.classes = classes;
    set.width = side * side;
    add_tiny_images(set, train, 1);
    add_tiny_images(set, test, 2);
    data::add_files(
        set, {{data::Part::train, static_cast<std::int32_t>(train)}, {data::Part::test, static_cast<std::int32_t>(test)}}, {});
    MILLRACE_ASSERT(data::measure_channels(set).ok(), "the images are in memory");
    return std::make_shared<const data::SampleSet>(std::move(set));
}

}  // namespace millrace::testing
