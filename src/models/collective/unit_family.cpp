#include "models/collective/unit_family.h"
#include "ops/activation.h"

#include <fmt/format.h>

#include <algorithm>

namespace millrace::models {

UnitFamily::UnitFamily(tape::Store& store, const std::string& role, std::int32_t first, std::int32_t stride, std::int32_t count,
                       std::int32_t inputs, const UnitShape& shape, float dropout)
    : first_(first), stride_(stride), count_(count), output_(shape.output) {
    // Positions in a unit count its activations and dropouts too: Linear 4 i, BatchNorm 4 i + 1, the last Linear right behind a
    // ReLU.
    auto names = [&](std::size_t position) {
        std::vector<std::string> all;
        all.reserve(static_cast<std::size_t>(count));
        for (std::int32_t i = 0; i < count; ++i) all.push_back(fmt::format("{}.{}.{}", role, first + i * stride, position));
        return all;
    };
    const std::size_t hidden = shape.hidden.size();
    nn::DenseOptions options{.in = inputs, .batch_norm = true, .activation = ops::Activation::relu, .shared_input = true};
    for (std::size_t i = 0; i < hidden; ++i) {
        options.out = shape.hidden[i];
        options.dropout = i + 1 < hidden ? dropout : 0;
        layers_.emplace_back(store, names(4 * i), names(4 * i + 1), options);
        options.in = options.out;
        options.shared_input = false;
    }
    const nn::DenseOptions last{.in = options.in, .out = shape.output};
    layers_.emplace_back(store, names(4 * hidden - 1), std::vector<std::string>{}, last);
}

void UnitFamily::forward(tape::Builder& builder, const tape::Value& x, std::optional<nn::Columns> gradient_columns,
                         const tape::Value& joined) const {
    tape::Value value = x;
    for (std::size_t i = 0; i < layers_.size(); ++i) {
        nn::DensePlacement placement;
        if (i == 0) placement.gradient_columns = gradient_columns;
        if (i + 1 == layers_.size()) {
            tape::Value columns = joined.columns(first_ * output_, output_);
            columns.view.g = count_;
            columns.view.stride_g = std::int64_t{stride_} * output_;
            placement.into = columns;
        }
        value = layers_[i].forward(builder, value, placement);
    }
}

std::vector<UnitFamily> declare_units(tape::Store& store, const std::string& role, std::int32_t count, std::int32_t inputs,
                                      const UnitShape& shape, bool vary, float dropout) {
    std::vector<UnitFamily> families;
    const std::int32_t kinds = vary ? std::min(count, 4) : 1;
    for (std::int32_t kind = 0; kind < kinds; ++kind) {
        const std::int32_t units = (count - kind + kinds - 1) / kinds;
        families.emplace_back(store, role, kind, kinds, units, inputs, vary ? varied(shape, kind) : shape, dropout);
    }
    return families;
}

}  // namespace millrace::models
