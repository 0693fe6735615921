#pragma once
// The collective model, revisions r1 and r2.

#include <optional>
#include <string>
#include <vector>

#include "models/collective/config.h"
#include "models/model.h"
#include "nn/dense.h"

namespace millrace::models {

/// Units (experts or analysts) of one shape, run side by side: the first layer of all is one wide product, later layers are
/// batched.
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

class Collective final : public Model {
public:
    /// `config` must be valid.
    explicit Collective(CollectiveConfig config) : config_(std::move(config)) {}

    base::Status declare(tape::Store& store) override;
    [[nodiscard]] data::Fields wants() const override;  ///< image and label
    Outputs build(tape::Builder& builder, data::BatchSource& source, data::Part part, std::int32_t rows) override;
    [[nodiscard]] std::int32_t minimum_rows() const override { return 2; }
    [[nodiscard]] const CollectiveConfig& config() const { return config_; }

private:
    tape::Value votes(tape::Builder& builder, const tape::Value& seen, std::int32_t rows) const;

    CollectiveConfig config_;
    std::vector<UnitFamily> experts_, analysts_;
    std::vector<nn::Dense> encoder_, analyst_encoder_, head_;
};

}  // namespace millrace::models
