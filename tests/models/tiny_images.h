#pragma once
// A small image set in memory: one random pattern per class, with noise on top. Learnable, deterministic.

#include <algorithm>
#include <memory>

#include "base/philox.h"
#include "data/images/image_set.h"

namespace millrace::testing {

inline data::LabeledImages tiny_images(std::uint32_t count, std::uint32_t side, std::uint32_t classes, std::uint32_t stream) {
    data::LabeledImages images;
    images.count = count;
    images.rows = images.columns = side;
    const std::uint32_t pixels = side * side;
    for (std::uint32_t i = 0; i < count; ++i) {
        const std::uint32_t label = base::random_bits(7, 0, stream, 1, i) % classes;
        images.labels.push_back(static_cast<std::uint8_t>(label));
        for (std::uint32_t p = 0; p < pixels; ++p) {
            const std::uint32_t pattern = base::random_bits(7, 0, 0, 2, label * pixels + p) % 160;
            const std::uint32_t noise = base::random_bits(7, 0, stream, 3, std::uint64_t{i} * pixels + p) % 96;
            images.pixels.push_back(static_cast<std::uint8_t>(pattern + noise));
        }
    }
    return images;
}

/// `train` images, of which a tenth validates, and `test` more.
inline std::shared_ptr<const data::ImageSet> tiny_set(std::uint32_t train, std::uint32_t test, std::uint32_t side = 5,
                                                      std::uint32_t classes = 3) {
    data::ImageSet set;
    set.name = "tiny";
    set.classes = classes;
    set.train = tiny_images(train, side, classes, 1);
    set.test = tiny_images(test, side, classes, 2);
    set.split = data::split_validation(train);
    set.pixels = data::measure_pixels(set.train, set.split.training);
    return std::make_shared<const data::ImageSet>(std::move(set));
}

}  // namespace millrace::testing
