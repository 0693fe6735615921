#include "models/task.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "nn/losses.h"

namespace millrace::models {
namespace {

constexpr record::MetricInfo kRegressionMetrics[] = {
    {"r2", "ratio", record::MetricKind::kGauge, record::MetricScope::kTrain,
     "Share of the answers' variance that a regression explains: 1 is perfect, 0 is always answering their mean."},
    {"mean_absolute_error", "", record::MetricKind::kGauge, record::MetricScope::kTrain,
     "Mean distance of a regression's answers from the right ones, in their own unit."},
};

/// Batches: predictions, answers.
class RegressionScoring final : public Scoring {
public:
    RegressionScoring(double deviation, std::string name) : deviation_(deviation), name_(std::move(name)) {}

    void add(const std::vector<std::vector<double>>& tensors) override {
        for (std::size_t i = 0; i < tensors[1].size(); ++i) {
            const double wanted = tensors[1][i], error = tensors[0][i] - wanted;
            rows_ += 1;
            absolute_ += std::abs(error);
            squares_ += error * error;
            const double away = wanted - mean_;
            mean_ += away / rows_;
            spread_ += away * (wanted - mean_);
        }
    }
    [[nodiscard]] Scored finish() const override {
        const double r2 = spread_ > 0 ? 1 - squares_ / spread_ : 0, error = rows_ > 0 ? deviation_ * absolute_ / rows_ : 0;
        Scored scored;
        scored.figures = {{"r2", r2}, {"mean_absolute_error", error}};
        scored.summary = fmt::format("R2 {:.4f} mean absolute error {:.4g}{}", r2, error, name_.empty() ? "" : " of " + name_);
        return scored;
    }

private:
    double deviation_;
    std::string name_;
    double rows_ = 0, absolute_ = 0, squares_ = 0, mean_ = 0, spread_ = 0;
};

}  // namespace

std::vector<double> balanced_weights(const std::vector<std::int64_t>& counts) {
    const auto all = static_cast<double>(std::accumulate(counts.begin(), counts.end(), std::int64_t{0}));
    const auto present = static_cast<double>(std::ranges::count_if(counts, [](std::int64_t count) { return count > 0; }));
    std::vector<double> weights;
    weights.reserve(counts.size());
    for (const std::int64_t count : counts) weights.push_back(count > 0 ? all / (present * static_cast<double>(count)) : 1);
    return weights;
}

base::Result<std::vector<double>> class_weights(const base::Recipe& recipe, const data::Fields& fields) {
    constexpr const char* kKey = "train.class_weights";
    if (!recipe.has(kKey) || recipe.text(kKey) == "none") return std::vector<double>{};
    const data::Field* label = data::find_field(fields, "label");
    if (label == nullptr)
        return recipe.bad(kKey, fmt::format("{} = \"{}\" weighs classes, but the data has {}: a number is predicted; \"none\" "
                                            "would be right",
                                            kKey, recipe.text(kKey), data::text_of(fields)));
    const auto classes = static_cast<std::size_t>(label->limit);
    if (label->classes == nullptr || label->classes->counts.size() != classes) return std::vector<double>(classes, 1);
    return balanced_weights(label->classes->counts);
}

void Task::declare(tape::Store& store) {
    if (!class_weights.empty())
        weights = store.add_vector({"loss.weights"}, outputs, tape::Init::blocks(class_weights), tape::kSettings);
}

data::Fields Task::wants() const {
    return {input,
            regression ? data::Field{"target", data::Field::Kind::real, 1} : data::Field{"label", data::Field::Kind::integer, 1}};
}

tensor::View Task::gather(tape::Builder& builder, data::BatchSource& source, data::Part part, std::int32_t rows,
                          const tensor::View& x) const {
    return source.gather(builder, part, rows, {{input.name, x}, {regression ? "target" : "label"}})[1];
}

Outputs Task::judge(tape::Builder& builder, const tape::Value& prediction, const tensor::View& answers) const {
    Outputs left{prediction, {}, {}};
    if (regression) {
        nn::mse(builder, prediction, answers);
        if (!builder.training()) left.kept = {prediction.view, answers};
        for (const tensor::View& view : left.kept) builder.keep(view);
    } else {
        const bool weighted = builder.training() && !class_weights.empty();
        left.predicted =
            nn::cross_entropy(builder, prediction, answers, weighted ? builder.store().parameter(weights) : tensor::View{});
        left.labels = answers;
    }
    if (builder.training()) builder.backward();
    return left;
}

std::unique_ptr<Scoring> Task::scoring() const {
    if (!regression) return nullptr;
    return std::make_unique<RegressionScoring>(deviation, name);
}

base::Result<Task> task_of(const base::Recipe& recipe, const data::Fields& fields) {
    Task task;
    MILLRACE_SET(task.class_weights, class_weights(recipe, fields));
    for (const char* each : {"vector", "image"})
        if (const data::Field* input = data::find_field(fields, each)) {
            task.input = {each, data::Field::Kind::real, input->width};
            task.input.shape = input->shape;
        }
    if (const data::Field* label = data::find_field(fields, "label")) {
        task.outputs = label->limit;
    } else if (const data::Field* target = data::find_field(fields, "target")) {
        task.regression = true;
        task.outputs = target->width;
        if (target->scaling) task.mean = target->scaling->mean.front(), task.deviation = target->scaling->deviation.front();
        if (!target->names.empty()) task.name = target->names.front();
    }
    return task;
}

Family task_family(std::string name, std::vector<std::string> presets, decltype(Family::schema) schema,
                   decltype(Family::make) make) {
    Family family{std::move(name), std::move(presets), schema, make};
    family.metrics = kRegressionMetrics;
    family.weighs_classes = true;
    return family;
}

}  // namespace millrace::models
