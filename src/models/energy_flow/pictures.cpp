#include "models/energy_flow/offers.h"

#include <fmt/format.h>

#include <algorithm>

#include "models/energy_flow/energy_flow.h"
#include "models/energy_flow/sample_svg.h"

namespace millrace::models {
namespace {

constexpr std::int64_t kUsualFlows = 48;

class FlowPictures final : public Pictures {
public:
    explicit FlowPictures(EnergyFlow& model) : model_(model) {}

    Outputs build(tape::Builder& builder, data::BatchSource& source, data::Part part) override {
        return model_.build_trace(builder, source, part);
    }

    base::Result<std::vector<Picture>> draw(const SampleInfo& sample, const std::vector<std::vector<double>>& kept,
                                            const std::vector<EvalOption>& options) override {
        FlowTrace trace = model_.trace_of(kept);
        static_cast<SampleInfo&>(trace) = sample;
        if (sample.texts.size() == 2) {
            trace.input_text = sample.texts[0];
            trace.target_text = sample.texts[1];
        }
        const std::int64_t cells = std::int64_t{trace.width} * trace.height;
        const std::int64_t flows = options.front().value.value_or(std::min(kUsualFlows, cells));
        if (flows > cells)
            return base::Error{fmt::format("{} is more than the {} flows that start in a cube of {} x {}", flows, cells,
                                           trace.width, trace.height),
                               options.front().name};
        return std::vector<Picture>{{"surface", surface_svg(trace)},
                                    {"flows", flows_svg(trace, static_cast<std::int32_t>(flows))}};
    }

private:
    EnergyFlow& model_;
};

}  // namespace

std::unique_ptr<Pictures> flow_pictures(Model& model) { return std::make_unique<FlowPictures>(dynamic_cast<EnergyFlow&>(model)); }

}  // namespace millrace::models
