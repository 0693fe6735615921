#pragma once
// One function per operator; the contracts are those of ops/op.h with real = stat = f64. None of them allocates.

#include "ops/op.h"

namespace millrace::ops::ref {

/// Calls body(member, group) for every matrix of an operand.
template <class Body>
void for_each_matrix(const tensor::Operand& shape, Body&& body) {
    for (int member = 0; member < shape.k; ++member)
        for (int group = 0; group < shape.g; ++group) body(member, group);
}

/// target (+) = value.
inline void store(double& target, double value, bool accumulate) { target = accumulate ? target + value : value; }

}  // namespace millrace::ops::ref
