#pragma once
// Loops over a slice of the logits of some rows, transposed: s [entries of the vocabulary][columns], a column per row of the
// batch, once per instruction set (ops/cpu/isa.h). Columns come in multiples of kColumnLanes; ld: floats from entry to entry.

#include <cstddef>
#include <cstdint>

#include "ops/cpu/isa.h"

namespace millrace::ops::cpu {

struct LogitSlice {
    static constexpr int kColumnLanes = 16;
    int entries, columns;
    float* s;
    std::ptrdiff_t ld;
};

struct VocabularyLoops {
    /// Adds bias[entry] (bias may be null), then per column the largest (a NaN never is) and its entry, the lowest on ties.
    void (*largest)(const LogitSlice& slice, const float* bias, float* top, std::int32_t* best);
    /// s = e^(s - top), and its sums per column.
    void (*exponentials)(const LogitSlice& slice, const float* top, float* sum);
    /// s *= factor[column], and sums per entry.
    void (*weigh)(const LogitSlice& slice, const float* factor, float* sum);
};
MILLRACE_ISA_TABLE(VocabularyLoops, vocabulary_loops)

}  // namespace millrace::ops::cpu
