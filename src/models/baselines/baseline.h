#pragma once
// A monolithic chain: hidden layers relu(norm(linear(x))) with dropout, and a Linear head; with `residual` each hidden layer adds
// its input, projected where the widths differ, before the ReLU.

#include <optional>
#include <vector>

#include "models/model.h"
#include "models/task.h"
#include "nn/dense.h"

namespace millrace::models {

struct BaselineConfig {
    std::vector<std::int32_t> widths;
    bool residual = false;
    Task task = {};
    float dropout = 0.1f;
};

class Baseline final : public Model {
public:
    explicit Baseline(BaselineConfig config) : config_(std::move(config)) {}

    base::Status declare(tape::Store& store) override;
    [[nodiscard]] data::Fields wants() const override { return config_.task.wants(); }
    Outputs build(tape::Builder& builder, data::BatchSource& source, data::Part part, std::int32_t rows) override;
    [[nodiscard]] std::int32_t minimum_rows() const override { return 2; }
    [[nodiscard]] bool classifies() const override { return !config_.task.regression; }
    [[nodiscard]] std::unique_ptr<Scoring> scoring(data::Part /*part*/, int /*member*/) const override {
        return config_.task.scoring();
    }

private:
    struct Layer {
        nn::Dense linear;
        std::optional<nn::Dense> skip;
    };
    tape::Value residual_layer(tape::Builder& builder, const Layer& layer, const tape::Value& x, std::size_t index) const;

    BaselineConfig config_;
    std::vector<Layer> layers_;
    nn::Dense out_;
};

}  // namespace millrace::models
