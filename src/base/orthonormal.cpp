#include "base/orthonormal.h"

#include <algorithm>
#include <cmath>

#include "base/philox.h"

namespace millrace::base {
namespace {

double dot(const double* a, const double* b, std::int64_t count) {
    // Four sums side by side: the compiler may not reorder one, and this is most of the time.
    double sums[4] = {0, 0, 0, 0};
    std::int64_t i = 0;
    for (; i + 4 <= count; i += 4)
        for (int lane = 0; lane < 4; ++lane) sums[lane] += a[i + lane] * b[i + lane];
    for (; i < count; ++i) sums[0] += a[i] * b[i];
    return (sums[0] + sums[1]) + (sums[2] + sums[3]);
}

/// Makes the `count` vectors of `length` orthonormal, in order. Each is reduced by all before it twice: once leaves an error that
/// grows with the number of vectors.
void orthonormalize(std::vector<double>& vectors, std::int64_t count, std::int64_t length) {
    for (std::int64_t i = 0; i < count; ++i) {
        double* own = vectors.data() + i * length;
        for (int pass = 0; pass < 2; ++pass)
            for (std::int64_t j = 0; j < i; ++j) {
                const double* before = vectors.data() + j * length;
                const double share = dot(own, before, length);
                for (std::int64_t c = 0; c < length; ++c) own[c] -= share * before[c];
            }
        const double norm = std::sqrt(dot(own, own, length));
        for (std::int64_t c = 0; c < length; ++c) own[c] /= norm;
    }
}

}  // namespace

std::vector<float> random_orthonormal(std::int32_t rows, std::int32_t cols, std::uint64_t seed, std::uint32_t stream) {
    const std::int64_t count = std::min(rows, cols), length = std::max(rows, cols);
    std::vector<double> vectors(static_cast<std::size_t>(count * length));
    for (std::size_t i = 0; i < vectors.size(); ++i) vectors[i] = static_cast<double>(random_normal(seed, 0, 0, stream, i));
    orthonormalize(vectors, count, length);
    std::vector<float> out(vectors.size());
    for (std::int64_t r = 0; r < rows; ++r)
        for (std::int64_t c = 0; c < cols; ++c)
            out[static_cast<std::size_t>(r * cols + c)] =
                static_cast<float>(vectors[static_cast<std::size_t>(rows >= cols ? c * length + r : r * length + c)]);
    return out;
}

}  // namespace millrace::base
