#include "ops/vocabulary/logit_loops.h"

namespace millrace::ops::cpu::MILLRACE_ISA {

#include "ops/cpu/elementary.inl"

namespace {

constexpr int kLanes = LogitSlice::kColumnLanes;

void largest(const LogitSlice& slice, const float* bias, float* top, std::int32_t* best) {
    for (int column = 0; column < slice.columns; column += kLanes) {
        float most[kLanes];
        std::int32_t place[kLanes];
        for (int j = 0; j < kLanes; ++j) {
            most[j] = -__builtin_inff();
            place[j] = 0;
        }
        float* at = slice.s + column;
        for (int v = 0; v < slice.entries; ++v, at += slice.ld) {
            const float shift = bias != nullptr ? bias[v] : 0.0f;
            for (int j = 0; j < kLanes; ++j) {
                const float value = at[j] + shift;
                at[j] = value;
                const bool larger = value > most[j];
                most[j] = larger ? value : most[j];
                place[j] = larger ? v : place[j];
            }
        }
        for (int j = 0; j < kLanes; ++j) {
            top[column + j] = most[j];
            best[column + j] = place[j];
        }
    }
}

void exponentials(const LogitSlice& slice, const float* top, float* sum) {
    for (int column = 0; column < slice.columns; column += kLanes) {
        float base[kLanes], total[kLanes];
        for (int j = 0; j < kLanes; ++j) {
            // A slice of nothing but -inf has exponentials of 0, not NaN.
            base[j] = top[column + j] == -__builtin_inff() ? 0.0f : top[column + j];
            total[j] = 0;
        }
        float* at = slice.s + column;
        for (int v = 0; v < slice.entries; ++v, at += slice.ld) {
            for (int j = 0; j < kLanes; ++j) {
                const float e = exp_of(at[j] - base[j]);
                at[j] = e;
                total[j] += e;
            }
        }
        for (int j = 0; j < kLanes; ++j) sum[column + j] = total[j];
    }
}

void weigh(const LogitSlice& slice, const float* factor, float* sum) {
    float* at = slice.s;
    for (int v = 0; v < slice.entries; ++v, at += slice.ld) {
        float lane[kLanes] = {};
        for (int column = 0; column < slice.columns; column += kLanes) {
            for (int j = 0; j < kLanes; ++j) {
                const float value = at[column + j] * factor[column + j];
                at[column + j] = value;
                lane[j] += value;
            }
        }
        float total = 0;
        for (int j = 0; j < kLanes; ++j) total += lane[j];
        sum[v] = total;
    }
}

}  // namespace

constexpr VocabularyLoops vocabulary_loops = {largest, exponentials, weigh};

}  // namespace millrace::ops::cpu::MILLRACE_ISA
