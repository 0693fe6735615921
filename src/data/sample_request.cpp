#include "data/sample_request.h"

#include <cmath>

#include "base/philox.h"
#include "io/checksum.h"

namespace millrace::data {

void split_samples(SampleSet& set, std::int32_t first, std::int32_t count, double validation, double test, std::uint64_t seed) {
    const auto whole = static_cast<std::uint32_t>(count);
    const auto testing = static_cast<std::uint32_t>(std::floor(count * test)),
               held_out = testing + static_cast<std::uint32_t>(std::floor(count * validation));
    const base::Shuffle order = base::make_shuffle(seed, 0, whole);
    for (std::uint32_t position = 0; position < whole; ++position) {
        const Part part = position < testing ? Part::test : position < held_out ? Part::validation : Part::train;
        set.part(part).push_back(first + static_cast<std::int32_t>(base::shuffled_index(order, position)));
    }
}

Part part_of_name(std::string_view name, const SampleRequest& request) {
    // The checksum mixes the bytes of short names too little for shares of them; Philox does the rest.
    const std::uint64_t sum = io::checksum_of(io::bytes_of(name));
    const double place =
        static_cast<double>(base::random_bits(request.seed ^ sum, static_cast<std::uint32_t>(sum >> 32), 0, 0, sum)) /
        4294967296.0;
    return place < request.test ? Part::test : place < request.test + request.validation ? Part::validation : Part::train;
}

}  // namespace millrace::data
