#include "data/split.h"

#include <cmath>

#include "base/philox.h"
#include "base/result.h"

namespace millrace::data {

Split split_validation(std::uint32_t count, double fraction, std::uint64_t seed) {
    MILLRACE_ASSERT(fraction >= 0 && fraction < 1, "a validation fraction lies in [0, 1)");
    const auto validating = static_cast<std::uint32_t>(std::floor(count * fraction));
    const base::Shuffle order = base::make_shuffle(seed, 0, count);
    Split split;
    split.validation.reserve(validating);
    split.training.reserve(count - validating);
    for (std::uint32_t position = 0; position < count; ++position)
        (position < validating ? split.validation : split.training).push_back(base::shuffled_index(order, position));
    return split;
}

}  // namespace millrace::data
