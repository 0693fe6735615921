#pragma once
// Eigenvalues and eigenvectors of a small symmetric matrix by Jacobi's rotations.

#include <cstddef>
#include <vector>

namespace millrace::search {

struct SymmetricEigen {
    std::vector<double> values;   ///< [n], in no order
    std::vector<double> vectors;  ///< [n, n] row-major; column i belongs to values[i]; orthonormal
};

/// `matrix` is [n, n] row-major and symmetric.
SymmetricEigen symmetric_eigen(std::vector<double> matrix, size_t n);

}  // namespace millrace::search
