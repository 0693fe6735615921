#pragma once
// Units (experts or analysts) of one shape, run side by side: the first layer of all is one wide product, later layers are
// batched.

#include <optional>
#include <string>
#include <vector>

#include "models/collective/config.h"
#include "nn/dense.h"

namespace millrace::models {

class UnitFamily {
public:
    /// Units first, first + stride, ... (`count` of them) of `role` ("experts"), each with `inputs` input columns.
    UnitFamily(tape::Store& store, const std::string& role, std::int32_t first, std::int32_t stride, std::int32_t count,
               std::int32_t inputs, const UnitShape& shape, float dropout);

    /// Reads x [K,1,B,inputs] and writes the units' outputs to their columns of `joined` [K,1,B,units*output]. Only
    /// `gradient_columns` of x get a gradient when given.
    void forward(tape::Builder& builder, const tape::Value& x, std::optional<nn::Columns> gradient_columns,
                 const tape::Value& joined) const;

private:
    std::int32_t first_, stride_, count_, output_;
    std::vector<nn::Dense> layers_;
};

/// The families of a role: one, or up to four when architectures vary.
std::vector<UnitFamily> declare_units(tape::Store& store, const std::string& role, std::int32_t count, std::int32_t inputs,
                                      const UnitShape& shape, bool vary, float dropout);

}  // namespace millrace::models
