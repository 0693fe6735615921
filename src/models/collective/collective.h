#pragma once
// The collective model, revisions r1 and r2.

#include <vector>

#include "models/collective/config.h"
#include "models/collective/unit_family.h"
#include "models/model.h"
#include "nn/dense.h"

namespace millrace::models {

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
