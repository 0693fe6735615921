// The pictures of a sample of flows: what they hold, and what odd samples do to them.

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "models/energy_flow/flow_trace.h"
#include "report/svg_text.h"

namespace millrace::models {
namespace {

using report::count_of;
using report::is_balanced;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

/// Flows straight up or down from every cell.
FlowTrace made_up_trace(std::int32_t width, std::int32_t height) {
    FlowTrace trace;
    trace.width = width;
    trace.height = height;
    trace.depth = 6;
    trace.steps = trace.steps_used = 3;
    trace.samples = 13;
    trace.part = "validation";
    trace.model = "energy_flow debug";
    trace.input_text = "The fountain stopped.";
    trace.target_text = "The mason came.";
    for (std::int32_t cell = 0; cell < width * height; ++cell) {
        const double energy = std::sin(1.3 * cell + 0.2), side = energy < 0 ? -1 : 1;
        const auto along = [](std::int32_t at, std::int32_t count) { return count > 1 ? -1 + 2.0 * at / (count - 1) : 0.0; };
        const double x = along(cell % width, width), y = along(cell / width, height);
        FlowPath path;
        path.row = cell;
        path.points = {{x, y, 0, energy, 0}, {x, y, side / 2, 1.1 * energy, 0}, {x, y, side, 1.2 * energy, 0}};
        path.arrived = true;
        path.above = side > 0;
        path.deposited = 1.2 * energy;
        trace.input.push_back(energy);
        trace.output.push_back(1.2 * energy);
        trace.target.push_back(0.9 * energy);
        trace.above.push_back(side > 0 ? path.deposited : 0);
        trace.below.push_back(side > 0 ? 0 : path.deposited);
        trace.paths.push_back(path);
    }
    return trace;
}

void expect_sound(const std::string& svg, const std::string& what) {
    EXPECT_TRUE(is_balanced(svg)) << what;
    for (const char* part : {"nan", "inf", "<script", "href", "--"})
        EXPECT_EQ(svg.find(part), std::string::npos) << what << ": " << part;
    EXPECT_EQ(svg.rfind("<svg ", 0), 0u) << what;
}

/// The classes that elements have, whatever the style sheet says.
std::size_t drawn(const std::string& svg, const std::string& css_class) {
    return count_of(svg.substr(svg.find("</style>")), "class=\"" + css_class + "\"");
}

TEST(SurfaceSvg, ThreeSheetsShareOneScaleWithALegend) {
    FlowTrace trace = made_up_trace(5, 4);
    trace.input_cosine = 0.25;
    trace.output_cosine = 0.5;
    trace.target_cosine = 0.75;
    trace.loss = 0.125;
    const std::string svg = surface_svg(trace);
    expect_sound(svg, "surface");
    for (const char* part : {">Input<", ">Output<", ">Target<", "cosine 0.250", "cosine 0.500", "cosine 0.750", "Loss 0.1250",
                             "The fountain stopped.", "The mason came.", "validation sample 0 of 13", "energy of a cell",
                             "prefers-color-scheme:dark"})
        EXPECT_NE(svg.find(part), std::string::npos) << part;
    EXPECT_EQ(count_of(svg, "energy of a cell"), 1u);
    EXPECT_EQ(count_of(svg, "<g transform"), 3u);
}

TEST(SurfaceSvg, EqualSamplesGiveEqualBytes) {
    EXPECT_EQ(surface_svg(made_up_trace(7, 5)), surface_svg(made_up_trace(7, 5)));
    EXPECT_EQ(flows_svg(made_up_trace(7, 5), 11), flows_svg(made_up_trace(7, 5), 11));
    FlowTrace other = made_up_trace(7, 5);
    other.output[17] = -other.output[17];
    EXPECT_NE(surface_svg(made_up_trace(7, 5)), surface_svg(other));
}

TEST(SurfaceSvg, ValuesThatAreNotFiniteAreMarkedAndCounted) {
    FlowTrace trace = made_up_trace(5, 4);
    EXPECT_EQ(drawn(surface_svg(trace), "bad"), 0u);
    trace.output[3] = kNan;
    trace.output[9] = -std::numeric_limits<double>::infinity();
    trace.loss = kNan;
    const std::string svg = surface_svg(trace);
    EXPECT_TRUE(is_balanced(svg));
    EXPECT_EQ(drawn(svg, "bad"), 2u) << "the cells, in one path, and the legend's key";
    EXPECT_NE(svg.find("2 of 60 not finite"), std::string::npos);
    for (std::vector<double>* cells : {&trace.input, &trace.output, &trace.target}) cells->assign(20, kNan);
    EXPECT_TRUE(is_balanced(surface_svg(trace)));
}

TEST(FlowPictures, OddSizesStillDraw) {
    for (const auto& [width, height] : {std::pair{2, 2}, std::pair{7, 1}, std::pair{1, 7}, std::pair{1, 1}, std::pair{3, 13}}) {
        const FlowTrace trace = made_up_trace(width, height);
        const std::string what = std::to_string(width) + " x " + std::to_string(height);
        expect_sound(surface_svg(trace), what);
        for (const std::int32_t flows : {0, 1, width * height, 1000}) expect_sound(flows_svg(trace, flows), what);
    }
    expect_sound(surface_svg(FlowTrace{}), "nothing");
    expect_sound(flows_svg(FlowTrace{}, 5), "nothing");
}

TEST(FlowPictures, TextsAreMadeHarmless) {
    FlowTrace trace = made_up_trace(2, 2);
    trace.input_text = "a<b>&\"'</svg><script>alert(1)</script>";
    trace.target_text = std::string(5000, 'x');
    for (const std::string& svg : {surface_svg(trace), flows_svg(trace, 2)}) {
        expect_sound(svg, "hostile");
        EXPECT_NE(svg.find("given: a&lt;b&gt;&amp;&quot;&#39;"), std::string::npos);
        EXPECT_EQ(svg.find(std::string(200, 'x')), std::string::npos);
    }
    trace.input_text.clear();
    EXPECT_EQ(surface_svg(trace).find("given:"), std::string::npos);
}

TEST(FlowPictures, ManyCellsStaySmall) {
    const FlowTrace trace = made_up_trace(100, 100);
    EXPECT_LT(surface_svg(trace).size(), 600u << 10);
    EXPECT_LT(flows_svg(trace, 48).size(), 600u << 10);
    const FlowTrace debug = made_up_trace(20, 20);
    EXPECT_LT(surface_svg(debug).size(), 100u << 10);
    EXPECT_LT(flows_svg(debug, 60).size(), 150u << 10);
}

TEST(FlowsSvg, DrawsAsManyFlowsAsAsked) {
    const FlowTrace trace = made_up_trace(6, 5);
    const std::size_t keys = 1;  // the legend's mark
    for (const std::int32_t flows : {0, 1, 7, 30}) {
        const std::string svg = flows_svg(trace, flows);
        EXPECT_EQ(drawn(svg, "ink"), 3u * static_cast<std::size_t>(flows) + keys) << "a start in each view";
        EXPECT_NE(svg.find(std::to_string(flows) + " of 30 flows drawn"), std::string::npos) << flows;
    }
    EXPECT_EQ(flows_svg(trace, 31), flows_svg(trace, 30));
}

TEST(FlowsSvg, ShowsBouncesProjectionsAndWhatWasSpawned) {
    FlowTrace trace = made_up_trace(2, 2);
    const std::string plain = flows_svg(trace, 4);
    EXPECT_EQ(drawn(plain, "wall"), 1u);
    EXPECT_EQ(plain.find("projected\" points"), std::string::npos);
    trace.paths[1].points[1].walls = 1;  // at x = 1, y = -1: both walls
    trace.paths[2].arrived = false;
    trace.paths[2].points.pop_back();
    FlowPath child = trace.paths[3];
    child.row = 4;
    child.parent = 3;
    trace.paths.push_back(child);
    const std::string svg = flows_svg(trace, 4);
    expect_sound(svg, "flows");
    EXPECT_EQ(drawn(svg, "wall"), 1u + 3);
    EXPECT_EQ(count_of(svg, "projected\" points"), 3u);
    EXPECT_EQ(drawn(svg, "ink"), 3u * 5 + 1);
    EXPECT_NE(svg.find("1 were projected (dashed); 1 spawned, 1 bounces"), std::string::npos);
    trace.paths[1].points[1].x = 0;  // on the wall of y alone
    EXPECT_EQ(drawn(flows_svg(trace, 4), "wall"), 1u + 2);
}

TEST(FlowsSvg, PlacesThatAreNotFiniteAreLeftOut) {
    FlowTrace trace = made_up_trace(3, 3);
    const std::size_t lines = count_of(flows_svg(trace, 9), "<polyline");
    trace.paths[4].points[1].x = kNan;
    const std::string broken = flows_svg(trace, 9);
    expect_sound(broken, "a place");
    EXPECT_LT(count_of(broken, "<polyline"), lines);
    trace.paths[5].points[0].energy = kNan;
    trace.paths[5].deposited = kNan;
    const std::string unknown = flows_svg(trace, 9);
    EXPECT_TRUE(is_balanced(unknown));
    EXPECT_GT(drawn(unknown, "bad"), 1u);
    EXPECT_EQ(unknown.find("nan"), std::string::npos);
}

TEST(EnergyScale, ReachesAlmostAllValuesAndIsSymmetric) {
    std::vector<double> values(1000, 0.37);
    values[0] = -90;
    const EnergyScale scale({&values});
    EXPECT_EQ(scale.limit(), 0.4);
    EXPECT_EQ(scale.level(0), EnergyScale::kSide);
    EXPECT_EQ(scale.level(-90), 0);
    EXPECT_EQ(scale.level(0.4), 2 * EnergyScale::kSide);
    EXPECT_EQ(scale.level(0.2) - EnergyScale::kSide, EnergyScale::kSide - scale.level(-0.2));
    EXPECT_EQ(scale.level(kNan), -1);
    EXPECT_NE(scale.legend(0, 0, 10, "e", "").find("\u2264"), std::string::npos) << "a value lies beyond";
}

TEST(EnergyScale, NothingZeroAndExtremesHaveALimit) {
    const std::vector<double> nothing, zero(5, 0.0), tiny(5, 1e-320), huge(5, 1e308), lone{0, 0, 0, 3}, bad(3, kNan);
    for (const std::vector<double>* values : {&nothing, &zero, &tiny, &huge, &lone, &bad}) {
        const EnergyScale scale({values});
        EXPECT_GT(scale.limit(), 0);
        EXPECT_TRUE(std::isfinite(scale.limit()));
    }
    EXPECT_EQ(EnergyScale({&nothing}).limit(), 1);
    EXPECT_EQ(EnergyScale({&lone}).limit(), 3);
}

}  // namespace
}  // namespace millrace::models
