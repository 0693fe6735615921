#pragma once
// A monolithic chain: hidden layers relu(norm(linear(x))) with dropout, and a Linear head; with `residual` each hidden layer adds
// its input, projected where the widths differ, before the ReLU. Its width solves a quadratic, for a given number of parameters.

#include <cstdint>
#include <optional>
#include <vector>

#include "base/result.h"
#include "models/task.h"
#include "nn/dense.h"

namespace millrace::models {

enum class BaselineKind : std::uint8_t { shallow, balanced, deep, very_deep, deep_resnet, very_deep_resnet };
constexpr BaselineKind kBaselines[] = {BaselineKind::shallow,   BaselineKind::balanced,    BaselineKind::deep,
                                       BaselineKind::very_deep, BaselineKind::deep_resnet, BaselineKind::very_deep_resnet};
const char* name_of(BaselineKind kind);
constexpr bool is_residual(BaselineKind kind) {
    return kind == BaselineKind::deep_resnet || kind == BaselineKind::very_deep_resnet;
}

/// Parameters of a chain: Linear + BatchNorm per hidden layer, with `residual` a projection where widths differ, a Linear head.
std::int64_t baseline_parameters(const std::vector<std::int32_t>& widths, bool residual, std::int32_t features,
                                 std::int32_t classes);

/// shallow: w, 0.9 w. balanced: w, w/2, w/4, w/8, without those of 20 or less. deep, deep_resnet: 8 times w. very_deep,
/// very_deep_resnet: 12 times w. An error when no width comes within 5 % of `target`.
base::Result<std::vector<std::int32_t>> solve_widths(BaselineKind kind, std::int64_t target, std::int32_t features,
                                                     std::int32_t classes);

struct BaselineConfig {
    std::vector<std::int32_t> widths;
    bool residual = false;
    Task task = {};
    float dropout = 0.1f;
    std::int64_t target_parameters = 0;  ///< that widths are solved for where there are none
};

class Baseline final : public TaskModel {
public:
    explicit Baseline(BaselineConfig config) : config_(std::move(config)) {}

    base::Status declare(tape::Store& store) override;
    Outputs build(tape::Builder& builder, data::BatchSource& source, data::Part part, std::int32_t rows) override;
    [[nodiscard]] std::int32_t minimum_rows() const override { return 2; }

private:
    [[nodiscard]] const Task& task() const override { return config_.task; }
    struct Layer {
        nn::Dense linear;
        std::optional<nn::Dense> skip;
    };

    BaselineConfig config_;
    std::vector<Layer> layers_;
    nn::Dense out_;
};

}  // namespace millrace::models
