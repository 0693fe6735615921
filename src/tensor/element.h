#pragma once
// One element of any type as a double. For tests, references and checks: nothing here is fast.

#include "tensor/dtype.h"

namespace millrace::tensor {

/// The value whose bytes begin at `at`, of any alignment.
template <class T>
T value_at(const void* at) {
    T value;
    std::memcpy(&value, at, sizeof value);
    return value;
}
template <class T>
void put_value(void* at, T value) {
    std::memcpy(at, &value, sizeof value);
}

inline double read_element(const void* at, DType type) {
    switch (type) {
        case DType::f64: return value_at<double>(at);
        case DType::f32: return static_cast<double>(value_at<float>(at));
        case DType::bf16: return static_cast<double>(from_bf16(value_at<std::uint16_t>(at)));
        case DType::f16: return static_cast<double>(from_f16(value_at<std::uint16_t>(at)));
        case DType::i32: return value_at<std::int32_t>(at);
        case DType::u8: return value_at<std::uint8_t>(at);
    }
    return 0;
}

inline void write_element(void* at, DType type, double value) {
    switch (type) {
        case DType::f64: return put_value(at, value);
        case DType::f32: return put_value(at, static_cast<float>(value));
        case DType::bf16: return put_value(at, to_bf16(static_cast<float>(value)));
        case DType::f16: return put_value(at, to_f16(static_cast<float>(value)));
        case DType::i32: return put_value(at, static_cast<std::int32_t>(value));
        case DType::u8: return put_value(at, static_cast<std::uint8_t>(value));
    }
}

}  // namespace millrace::tensor
