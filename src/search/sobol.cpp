#include "search/sampler.h"

#include <fmt/core.h>

#include <array>

#include "search/stream.h"

namespace millrace::search {
namespace {

/// A primitive polynomial over two elements (degree, inner coefficients as bits) and the first odd direction integers.
struct Direction {
    uint32_t degree;
    uint32_t inner;
    std::array<uint32_t, 7> first;
};

/// Dimensions 2 to 32; the first one is the van der Corput sequence.
constexpr std::array<Direction, kSobolDimensions - 1> kDirections = {{
    {1, 0, {1}},
    {2, 1, {1, 3}},
    {3, 1, {1, 3, 1}},
    {3, 2, {1, 1, 1}},
    {4, 1, {1, 1, 3, 3}},
    {4, 4, {1, 3, 5, 13}},
    {5, 2, {1, 1, 5, 5, 17}},
    {5, 4, {1, 1, 5, 5, 5}},
    {5, 7, {1, 1, 7, 11, 19}},
    {5, 11, {1, 1, 5, 1, 1}},
    {5, 13, {1, 1, 1, 3, 11}},
    {5, 14, {1, 3, 5, 5, 31}},
    {6, 1, {1, 3, 3, 9, 7, 49}},
    {6, 13, {1, 1, 1, 15, 21, 21}},
    {6, 16, {1, 3, 1, 13, 27, 49}},
    {6, 19, {1, 1, 1, 15, 7, 5}},
    {6, 22, {1, 3, 1, 15, 13, 25}},
    {6, 25, {1, 1, 5, 5, 19, 61}},
    {7, 1, {1, 3, 7, 11, 23, 15, 103}},
    {7, 4, {1, 3, 7, 13, 13, 15, 69}},
    {7, 7, {1, 1, 3, 13, 7, 35, 63}},
    {7, 8, {1, 3, 5, 9, 1, 25, 53}},
    {7, 14, {1, 3, 1, 13, 9, 35, 107}},
    {7, 19, {1, 3, 1, 5, 27, 61, 31}},
    {7, 21, {1, 1, 5, 11, 19, 41, 61}},
    {7, 28, {1, 3, 5, 3, 3, 13, 69}},
    {7, 31, {1, 1, 7, 13, 1, 19, 1}},
    {7, 32, {1, 3, 7, 5, 13, 19, 59}},
    {7, 37, {1, 1, 3, 9, 25, 29, 41}},
    {7, 41, {1, 3, 5, 13, 23, 1, 55}},
    {7, 42, {1, 3, 7, 3, 13, 59, 17}},
}};

std::array<uint32_t, 32> direction_numbers(size_t dimension) {
    std::array<uint32_t, 32> out{};
    if (dimension == 0) {
        for (uint32_t i = 0; i < 32; ++i) out[i] = uint32_t{1} << (31 - i);
        return out;
    }
    const Direction& from = kDirections.at(dimension - 1);
    for (uint32_t i = 0; i < 32; ++i) {
        if (i < from.degree) {
            out[i] = from.first[i] << (31 - i);
            continue;
        }
        out[i] = out[i - from.degree] ^ (out[i - from.degree] >> from.degree);
        for (uint32_t k = 1; k < from.degree; ++k)
            if (((from.inner >> (from.degree - 1 - k)) & 1) != 0) out[i] ^= out[i - k];
    }
    return out;
}

}  // namespace

std::vector<uint32_t> sobol_point(uint32_t index, size_t dimensions) {
    std::vector<uint32_t> out(dimensions, 0);
    for (size_t dimension = 0; dimension < dimensions; ++dimension) {
        const std::array<uint32_t, 32> numbers = direction_numbers(dimension);
        for (uint32_t bit = 0; bit < 32; ++bit)
            if (((index >> bit) & 1) != 0) out[dimension] ^= numbers[bit];
    }
    return out;
}

base::Result<std::unique_ptr<Sampler>> make_sobol_sampler(const Space& space, uint64_t seed) {
    if (space.size() > kSobolDimensions)
        return base::Error{fmt::format("the sobol sampler searches at most {} parameters, the space has {}; take random or tpe",
                                       kSobolDimensions, space.size()),
                           space.parameters[kSobolDimensions].place};
    std::vector<uint32_t> shifts;
    Stream stream(seed, 0, Purpose::sobol_shift);
    for (size_t i = 0; i < space.size(); ++i) shifts.push_back(stream.bits());
    return std::unique_ptr<Sampler>{std::make_unique<PointSampler>([space, shifts](int64_t number) {
        const std::vector<uint32_t> point = sobol_point(static_cast<uint32_t>(number), space.size());
        std::vector<double> unit(space.size());
        for (size_t i = 0; i < unit.size(); ++i)
            unit[i] = (static_cast<double>(point[i] ^ shifts[i]) + 0.5) * (1.0 / 4294967296.0);
        return space.from_unit(unit);
    })};
}

}  // namespace millrace::search
