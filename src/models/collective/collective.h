#pragma once
// The collective model: experts read the input, an encoder condenses their outputs, analysts read input and summary, a head
// decides on the analysts' votes (r1) or on an encoding of them (r2).

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "models/task.h"
#include "nn/dense.h"

namespace millrace::models {

enum class Revision : std::uint8_t { r1, r2 };

/// Widths of one expert or analyst: hidden layers (Linear, BatchNorm, ReLU), then a plain output layer.
struct UnitShape {
    std::vector<std::int32_t> hidden;
    std::int32_t output = 1;
    friend bool operator==(const UnitShape&, const UnitShape&) = default;
};

/// Shape of unit `index` when architectures vary, by index mod 4: as given; hidden widths x 1.25; three hidden layers first,
/// (first + last) / 2, last; hidden widths x 0.8. Widths are rounded down, the output width stays.
UnitShape varied(const UnitShape& base, std::int32_t index);

struct CollectiveConfig {
    Revision revision = Revision::r1;
    Task task = {};
    std::int32_t experts = 2, analysts = 6;
    UnitShape expert{{128, 64}, 32}, analyst{{64, 32}, 16};
    bool vary_experts = false, vary_analysts = false;
    double expert_compression = 0.25;   ///< summary width over the width of all opinions
    double collective_compression = 1;  ///< r2: factor on the width of the encoded votes
    std::int32_t code = 0;              ///< r2: width of the encoded votes; 0: by the rule of code_width()
    double hidden_scale = 1;            ///< head: hidden width over input width
    float unit_dropout = 0.2f, encoder_dropout = 0.1f, head_dropout = 0.2f;
    bool diversity_experts = false, diversity_analysts = false;
    double diversity_weight = 0.01, diversity_temperature = 1;

    [[nodiscard]] std::int32_t features() const { return task.input.width; }
    [[nodiscard]] std::int32_t opinions_width() const { return experts * expert.output; }
    [[nodiscard]] std::int32_t summary_width() const;
    [[nodiscard]] std::int32_t votes_width() const { return analysts * analyst.output; }
    /// r2: min(2048, max(64, floor(a (1 + log2 A)))) * collective_compression, at least twice the number of outputs.
    [[nodiscard]] std::int32_t code_width() const;
    [[nodiscard]] std::int32_t head_input() const { return revision == Revision::r2 ? code_width() : votes_width(); }
    [[nodiscard]] std::int32_t head_hidden() const;
};

/// Hidden width of an encoder: floor(sqrt(in * out)).
std::int32_t encoder_hidden(std::int32_t in, std::int32_t out);

/// How many of `total` units are experts: round(total * ratio), half to even, at least 1 (r2: 2) and at most total - 1.
std::int32_t expert_count(std::int32_t total, double ratio, Revision revision);

/// Refuses what the rules of single keys let pass and cannot be built; the message names the recipe key.
base::Status validate(const CollectiveConfig& config);

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

class Collective final : public TaskModel {
public:
    /// `config` must be valid.
    explicit Collective(CollectiveConfig config) : config_(std::move(config)) {}

    base::Status declare(tape::Store& store) override;
    Outputs build(tape::Builder& builder, data::BatchSource& source, data::Part part, std::int32_t rows) override;
    [[nodiscard]] std::int32_t minimum_rows() const override { return 2; }
    [[nodiscard]] const CollectiveConfig& config() const { return config_; }

private:
    [[nodiscard]] const Task& task() const override { return config_.task; }
    tape::Value votes(tape::Builder& builder, const tape::Value& seen, std::int32_t rows) const;

    CollectiveConfig config_;
    std::vector<UnitFamily> experts_, analysts_;
    std::vector<nn::Dense> encoder_, analyst_encoder_, head_;
};

}  // namespace millrace::models
