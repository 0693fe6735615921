#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "models/energy_flow/energy_flow.h"
#include "models/energy_flow/flow_trace.h"
#include "plot/svg.h"

namespace millrace::models {
namespace {

constexpr std::size_t kLongestText = 130;
constexpr double kSurfaceWidth = 912, kLeft = 44, kSide = 256, kGap = 34, kSurfaceTitles = 44, kFooter = 100;

constexpr const char* kSurfaceRules =
    R"(.frame{fill:none;stroke:#9ca3af}.faint{fill:none;stroke:#d1d5db}.ink{fill:#374151}.wall{fill:#ffffff;stroke:#374151}
polyline{fill:none!important;stroke-width:1.3;stroke-linejoin:round}.projected{stroke-dasharray:2 3}
)";
constexpr const char* kSurfaceDarkRules =
    ".frame{stroke:#6b7280}.faint{stroke:#374151}.ink{fill:#d1d5db}.wall{fill:#111827;stroke:#d1d5db}";

struct Sheet {
    const char* title;
    std::string below_title;
    const std::vector<double>* cells;
};

std::string draw(const Sheet& sheet, const FlowTrace& trace, const EnergyScale& scale, double left, double cell) {
    const double width = cell * trace.width, height = cell * trace.height, top = kSampleHeader + kSurfaceTitles;
    std::string text = plot::text_at(left, top - 26, "title", "start", sheet.title);
    text += plot::text_at(left, top - 10, "axis", "start", sheet.below_title) + "\n";
    // y points up, as in the cube.
    text += fmt::format("<g transform=\"translate({} {}) scale({:.4g} {:.4g})\" shape-rendering=\"crispEdges\">{}</g>\n",
                        plot::short_number(left), plot::short_number(top + height), cell, -cell,
                        energy_cells(scale, *sheet.cells, trace.width, trace.height, false));
    text += fmt::format("<rect class=\"frame\" x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\"/>", plot::short_number(left),
                        plot::short_number(top), plot::short_number(width), plot::short_number(height));
    const auto across = [&](int at) {
        text += plot::text_at(left + (at + 0.5) * cell, top + height + 13, "axis", "middle", fmt::format("{}", at));
    };
    const auto upwards = [&](int at) {
        text += plot::text_at(left - 4, top + height - (at + 0.5) * cell + 3.5, "axis", "end", fmt::format("{}", at));
    };
    across(0);
    if (trace.width > 1) across(trace.width - 1);
    upwards(0);
    if (trace.height > 1) upwards(trace.height - 1);
    text += plot::text_at(left + width / 2, top + height + 13, "axis", "middle", "x, cells");
    return text + plot::text_at(left - 4, top + height / 2 + 3.5, "axis", "end", "y") + "\n";
}

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

std::string sample_svg_begin(const FlowTrace& trace, const std::string& headline, double width, double height) {
    std::string svg =
        plot::svg_begin(headline, width, height, kSurfaceRules + energy_rules(false), kSurfaceDarkRules + energy_rules(true));
    svg += plot::text_at(16, 24, "head", "start", headline);
    svg +=
        plot::text_at(16, 42, "", "start",
                      fmt::format("{}, weights after step {}; {} sample {} of {}; cube of {} x {} x {}", trace.model, trace.step,
                                  trace.part, trace.sample, trace.samples, trace.width, trace.height, trace.depth));
    double y = 58;
    for (const auto& [name, text] : {std::pair{"given", &trace.input_text}, std::pair{"answer", &trace.target_text}})
        if (!text->empty()) {
            svg += plot::text_at(16, y, "", "start", fmt::format("{}: {}", name, plot::shortened(*text, kLongestText)));
            y += 16;
        }
    return svg + "\n";
}

std::string surface_svg(const FlowTrace& trace) {
    const EnergyScale scale({&trace.input, &trace.output, &trace.target});
    const double cell = std::min(kSide / std::max(trace.width, 1), kSide / std::max(trace.height, 1));
    const double bottom = kSampleHeader + kSurfaceTitles + cell * trace.height;
    std::string svg = sample_svg_begin(trace, "Energy on the surface of the cube", kSurfaceWidth, bottom + kFooter);
    const std::array<Sheet, 3> sheets = {
        Sheet{"Input", fmt::format("as the mapper laid it; cosine {:.3f}", trace.input_cosine), &trace.input},
        Sheet{"Output", fmt::format("as the flows carried it; cosine {:.3f}", trace.output_cosine), &trace.output},
        Sheet{"Target", fmt::format("the answer's vector; cosine {:.3f}", trace.target_cosine), &trace.target}};
    for (std::size_t i = 0; i < sheets.size(); ++i)
        svg += draw(sheets[i], trace, scale, kLeft + static_cast<double>(i) * (kSide + kGap), cell);
    svg += scale.legend(kLeft, bottom + 44, kSide, "e", "energy of a cell");
    const double x = kLeft + kSide + kGap;
    svg += plot::text_at(x, bottom + 38, "", "start",
                         fmt::format("Loss {:.4f}: mean squared difference between output and target.", trace.loss));
    svg +=
        plot::text_at(x, bottom + 54, "", "start", "Cosine: between the answer's vector and the one read back from the surface.");
    svg += plot::text_at(x, bottom + 70, "", "start",
                         fmt::format("{} cells can hold {:.3f} of this answer: the target's own cosine is the ceiling.",
                                     trace.target.size(), trace.target_cosine));
    return svg + "\n</svg>\n";
}

std::unique_ptr<Pictures> flow_pictures(Model& model) { return std::make_unique<FlowPictures>(dynamic_cast<EnergyFlow&>(model)); }

}  // namespace millrace::models
