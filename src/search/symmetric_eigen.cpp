#include "search/symmetric_eigen.h"

#include <cmath>

namespace millrace::search {
namespace {

constexpr int kMostSweeps = 50;  // five to ten are usual

/// Makes element (p, q) zero by rotating rows and columns p and q, and turns the columns of `vectors` along.
void rotate(std::vector<double>& a, std::vector<double>& vectors, size_t n, size_t p, size_t q) {
    const double theta = (a[q * n + q] - a[p * n + p]) / (2 * a[p * n + q]);
    const double t = (theta >= 0 ? 1 : -1) / (std::abs(theta) + std::sqrt(theta * theta + 1));
    const double c = 1 / std::sqrt(t * t + 1), s = t * c;
    for (size_t k = 0; k < n; ++k) {
        const double kp = a[k * n + p], kq = a[k * n + q];
        a[k * n + p] = c * kp - s * kq;
        a[k * n + q] = s * kp + c * kq;
    }
    for (size_t k = 0; k < n; ++k) {
        const double pk = a[p * n + k], qk = a[q * n + k];
        a[p * n + k] = c * pk - s * qk;
        a[q * n + k] = s * pk + c * qk;
        const double vp = vectors[k * n + p], vq = vectors[k * n + q];
        vectors[k * n + p] = c * vp - s * vq;
        vectors[k * n + q] = s * vp + c * vq;
    }
}

}  // namespace

SymmetricEigen symmetric_eigen(std::vector<double> matrix, size_t n) {
    SymmetricEigen out{std::vector<double>(n), std::vector<double>(n * n, 0)};
    for (size_t i = 0; i < n; ++i) out.vectors[i * n + i] = 1;
    double norm = 0;
    for (const double element : matrix) norm += element * element;
    for (int sweep = 0; sweep < kMostSweeps; ++sweep) {
        double off = 0;
        for (size_t p = 0; p < n; ++p)
            for (size_t q = p + 1; q < n; ++q) off += matrix[p * n + q] * matrix[p * n + q];
        if (off <= 1e-30 * norm) break;
        for (size_t p = 0; p < n; ++p)
            for (size_t q = p + 1; q < n; ++q)
                if (matrix[p * n + q] != 0) rotate(matrix, out.vectors, n, p, q);
    }
    for (size_t i = 0; i < n; ++i) out.values[i] = matrix[i * n + i];
    return out;
}

}  // namespace millrace::search
