#include "io/element_type.h"

#include <array>

namespace millrace::io {
namespace {

struct Row {
    ElementType type;
    std::string_view name;
    std::size_t size;
};

constexpr std::array<Row, 13> kRows{{{ElementType::kF64, "F64", 8},
                                     {ElementType::kF32, "F32", 4},
                                     {ElementType::kF16, "F16", 2},
                                     {ElementType::kBF16, "BF16", 2},
                                     {ElementType::kI64, "I64", 8},
                                     {ElementType::kI32, "I32", 4},
                                     {ElementType::kI16, "I16", 2},
                                     {ElementType::kI8, "I8", 1},
                                     {ElementType::kU64, "U64", 8},
                                     {ElementType::kU32, "U32", 4},
                                     {ElementType::kU16, "U16", 2},
                                     {ElementType::kU8, "U8", 1},
                                     {ElementType::kBool, "BOOL", 1}}};

const Row& row_of(ElementType type) { return kRows[static_cast<std::size_t>(type)]; }

}  // namespace

std::string_view name_of(ElementType type) { return row_of(type).name; }
std::size_t size_of(ElementType type) { return row_of(type).size; }

std::optional<ElementType> element_type_named(std::string_view name) {
    for (const Row& row : kRows)
        if (row.name == name) return row.type;
    return std::nullopt;
}

}  // namespace millrace::io
