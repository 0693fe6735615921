#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <limits>
#include <nlohmann/json.hpp>

#include "base/json.h"
#include "report/diagnosis_forms.h"
#include "report/doctor_words.h"
#include "report/made_up_diagnosis.h"
#include "report/svg_text.h"

namespace millrace::report {
namespace {

using Json = nlohmann::json;

TEST(DiagnosisJson, KeysAreThoseOfTheSchema) {
    const Json json = base::json_or_throw(diagnosis_json(sick_diagnosis()));
    EXPECT_EQ(json["schema"], 1);
    EXPECT_EQ(json["healthy"], false);
    EXPECT_EQ(json["busy_share"], 0.79);
    EXPECT_EQ(json["steps"], 1500);
    EXPECT_EQ(json["step_ms"], 28.0);
    EXPECT_EQ(json["overhead_share"], 0.004);
    EXPECT_EQ(json["dropped_records"], 0);
    EXPECT_EQ(json["breakdown"].size(), diagnose::kOwners);
    EXPECT_EQ(json["breakdown"]["host-sync"], 4.48);
    EXPECT_EQ(json["breakdown"]["communication"], 0.0);
    ASSERT_EQ(json["findings"].size(), 2u);
    const Json& first = json["findings"][0];
    EXPECT_EQ(first["kind"], "host-sync");
    EXPECT_EQ(first["severity"], "critical");
    EXPECT_EQ(first["where"]["file"], "/home/ada/project/train.py");
    EXPECT_EQ(first["where"]["line"], 41);
    EXPECT_EQ(first["where"]["function"], "train");
    EXPECT_EQ(first["lost_ms_per_step"], 4.48);
    EXPECT_EQ(first["gain_upper_bound"], 0.16);
    EXPECT_EQ(first["confidence"], 0.92);
    EXPECT_EQ(first["stack"].size(), 3u);
    EXPECT_TRUE(first["evidence"].is_string() && first["fix"].is_string() && first["what"].is_string());
}

TEST(DiagnosisJson, MeanStepIsThatOfTheRecordedSteps) {
    diagnose::Diagnosis diagnosis = sick_diagnosis();
    diagnosis.recorded = {{0, 20'000'000}, {20'000'000, 45'000'000}, {100'000'000, 130'000'000}};
    EXPECT_DOUBLE_EQ(base::json_or_throw(diagnosis_json(diagnosis))["mean_step_ms"].get<double>(), 25.0);
    diagnosis.unseen_loading_ms = 7;
    EXPECT_DOUBLE_EQ(base::json_or_throw(diagnosis_json(diagnosis))["mean_step_ms"].get<double>(), 32.0)
        << "the breakdown has these";
    EXPECT_DOUBLE_EQ(base::json_or_throw(diagnosis_json(diagnosis))["unseen_loading_ms_per_step"].get<double>(), 7.0);
    diagnosis.recorded.clear();
    EXPECT_TRUE(base::json_or_throw(diagnosis_json(diagnosis))["mean_step_ms"].is_null());
}

TEST(DiagnosisJson, WhatWasNotMeasuredIsNull) {
    diagnose::Diagnosis diagnosis;
    diagnose::Finding finding;
    finding.lost_ms_per_step = std::numeric_limits<double>::quiet_NaN();
    diagnosis.findings.push_back(finding);
    const Json json = base::json_or_throw(diagnosis_json(diagnosis));
    for (const char* key : {"busy_share", "step_ms", "mean_step_ms", "overhead_share", "window_overhead_share",
                            "undisturbed_step_ms", "undisturbed_evaluation_ms_per_step", "title"})
        EXPECT_TRUE(json[key].is_null()) << key;
    EXPECT_EQ(json["steps"], 0);
    EXPECT_TRUE(json["breakdown"]["compute"].is_null());
    EXPECT_TRUE(json["findings"][0]["where"].is_null());
    EXPECT_TRUE(json["findings"][0]["gain_upper_bound"].is_null());
    EXPECT_TRUE(json["findings"][0]["lost_ms_per_step"].is_null());
}

TEST(DiagnosisJson, KernelsAndTheRunHaveTheirKeys) {
    diagnose::Diagnosis diagnosis = healthy_diagnosis();
    diagnosis.kernels = made_up_kernels();
    diagnosis.run = {60.5, {{4, 10.5, 40, 3, 1, 2}}};
    const Json json = base::json_or_throw(diagnosis_json(diagnosis));
    EXPECT_EQ(json["gpu_ms"], 1000.0);
    ASSERT_EQ(json["kernels"].size(), 3u);
    const Json &first = json["kernels"][0], &last = json["kernels"][2], &chain = json["fusible"][0];
    EXPECT_EQ(first["calls"], 1200);
    EXPECT_EQ(first["ms"], 600.0);
    EXPECT_EQ(first["share"], 0.6);
    EXPECT_EQ(first["where"]["line"], 7);
    EXPECT_EQ(first["data_type"], "bf16");
    EXPECT_EQ(first["tensor_cores"], true);
    EXPECT_EQ(first["waves"], 3.25);
    EXPECT_EQ(json["kernels"][1]["tensor_cores"], false);
    for (const char* key : {"where", "data_type", "tensor_cores", "waves"}) EXPECT_TRUE(last[key].is_null()) << key;
    EXPECT_EQ(chain["kernels"].size(), 2u);
    EXPECT_EQ(chain["length"], 2);
    EXPECT_EQ(chain["times"], 4800);
    EXPECT_EQ(chain["share"], 0.24);
    EXPECT_EQ(json["run"], (Json{{"wall_s", 60.5},
                                 {"start_up_s", 4.0},
                                 {"compiling_s", 10.5},
                                 {"training_s", 40.0},
                                 {"evaluation_s", 3.0},
                                 {"checkpoints_s", 1.0},
                                 {"other_s", 2.0}}));
    diagnosis.run.seconds.reset();
    const Json unsampled = base::json_or_throw(diagnosis_json(diagnosis))["run"];
    EXPECT_EQ(unsampled["wall_s"], 60.5);
    EXPECT_TRUE(unsampled["training_s"].is_null()) << "not measured is not 0";
}

TEST(DiagnosisJson, LongTablesAreCut) {
    diagnose::Diagnosis diagnosis = healthy_diagnosis();
    diagnosis.kernels.gpu_ms = 1;
    diagnosis.kernels.rows.resize(500);
    diagnosis.kernels.chains.resize(500);
    diagnosis.kernels.chains[0].names.resize(10'000);
    const Json json = base::json_or_throw(diagnosis_json(diagnosis));
    EXPECT_EQ(json["kernels"].size(), 50u);
    EXPECT_EQ(json["fusible"].size(), 50u);
    EXPECT_EQ(json["fusible"][0]["kernels"].size(), 50u);
    EXPECT_EQ(json["fusible"][0]["length"], 10'000);
}

TEST(DiagnosisForms, ShowKernelsAndTheRun) {
    diagnose::Diagnosis diagnosis = healthy_diagnosis();
    diagnosis.kernels = made_up_kernels();
    diagnosis.kernels.rows[2].name = "<script>|\x1b[2J`";
    diagnosis.run = {60.5, {{4, 10.5, 40, 3, 1, 2}}};
    const std::string text = diagnosis_text(diagnosis, {}), html = diagnosis_html(diagnosis, {}),
                      markdown = diagnosis_markdown(diagnosis);
    const std::string run =
        "The run took 60.5 s: start-up 4.0 s, compiling 10.5 s, training 40.0 s, evaluation 3.0 s, checkpoints 1.0 s, other 2.0 "
        "s";
    for (const char* part : {"tensor cores used in 60 % of its time (not known: 10 %)", "60.0 %", "1,200", "bf16", "3.2",
                             "model.py:7", "24.0 %, 2 element-wise kernels in a row at model.py:7: "}) {
        EXPECT_NE(text.find(part), std::string::npos) << part << "\n" << text;
        EXPECT_NE(html.find(part), std::string::npos) << part;
    }
    EXPECT_NE(text.find("The run took 60.5 s: start-up 4.0 s, compiling 10.5 s, training 40.0 s,"), std::string::npos) << text;
    EXPECT_NE(html.find(run), std::string::npos);
    EXPECT_NE(markdown.find(run), std::string::npos);
    EXPECT_NE(markdown.find("| <code>sm90&#95;xmma&#95;gemm"), std::string::npos) << markdown;
    for (const std::string& form : {text, html, markdown}) EXPECT_EQ(form.find('\x1b'), std::string::npos);
    EXPECT_EQ(html.find("<script>|"), std::string::npos);
    EXPECT_EQ(markdown.find("<script>"), std::string::npos);
    EXPECT_LT(std::ranges::count(text, '\n'), 24);
}

TEST(DiagnosisText, KernelsOnlyTakeRoomThatIsLeft) {
    diagnose::Diagnosis diagnosis = healthy_diagnosis();
    diagnosis.kernels = made_up_kernels();
    diagnosis.kernels.rows.resize(200, diagnosis.kernels.rows[0]);
    diagnosis.kernels.chains.resize(40, diagnosis.kernels.chains[0]);
    const auto lines = [&](std::size_t height, bool all) {
        TextOptions options;
        options.height = height;
        options.all = all;
        return std::ranges::count(diagnosis_text(diagnosis, options), '\n');
    };
    for (std::size_t height = 16; height < 40; ++height) EXPECT_LT(lines(height, false), static_cast<std::ptrdiff_t>(height));
    EXPECT_GT(lines(24, true), 45) << "--all has no height";
}

TEST(KernelText, LeavesOutWhatSaysLittle) {
    EXPECT_EQ(kernel_text("void at::native::(anonymous namespace)::softmax<float, (int)4>(float*, int)"),
              "softmax<float, (int)4>");
    EXPECT_EQ(kernel_text("ampere_sgemm_128x64_tn"), "ampere_sgemm_128x64_tn");
    EXPECT_EQ(kernel_text("(odd)"), "(odd)");
    EXPECT_EQ(kernel_text("void at::native::vectorized_elementwise_kernel<(int)4, at::native::GeluFunctor<c10::Half> >(int)"),
              "GeluFunctor<Half> >");
    EXPECT_EQ(kernel_text("elementwise_kernel<128, 2"), "");
    EXPECT_EQ(kernel_text(""), "");
}

TEST(DiagnosisJson, BytesThatAreNoUtf8AreReplaced) {
    diagnose::Diagnosis diagnosis = sick_diagnosis();
    diagnosis.findings[0].where->file = "a\xff.py";
    diagnosis.remarks = {"\x80"};
    const Json json = base::json_or_throw(diagnosis_json(diagnosis));
    EXPECT_EQ(json["findings"][0]["where"]["file"], "a\xef\xbf\xbd.py");
}

TEST(DiagnosisForms, SayWhatEvaluationAddsWhileNothingIsRecorded) {
    diagnose::Diagnosis diagnosis = sick_diagnosis();
    diagnosis.evaluation_ms = 12.4;
    const std::string unrecorded = "12.4 ms to each (4.40 ms unrecorded)";
    const auto pages = [&] { return std::array{diagnosis_markdown(diagnosis), diagnosis_html(diagnosis, {})}; };
    for (const std::string& text : pages()) EXPECT_EQ(text.find(unrecorded), std::string::npos);
    diagnosis.undisturbed_evaluation_ms = 4.4;
    for (const std::string& text : pages()) EXPECT_NE(text.find(unrecorded), std::string::npos) << text.substr(0, 4'000);
    const Json json = base::json_or_throw(diagnosis_json(diagnosis));
    EXPECT_EQ(json["evaluation_ms_per_step"], 12.4);
    EXPECT_EQ(json["undisturbed_evaluation_ms_per_step"], 4.4);
}

TEST(DiagnosisMarkdown, SaysWhatTheTextSays) {
    const std::string text = diagnosis_markdown(sick_diagnosis());
    EXPECT_NE(text.find("**The GPU worked 79 % of the time**: 1,500 steps of 28.0 ms"), std::string::npos);
    EXPECT_NE(text.find("| host waits for GPU | 4.480 | 16.0 % |"), std::string::npos) << text;
    EXPECT_NE(text.find("`host-sync`, critical, at <code>/home/ada/project/train.py:41 in train</code>"), std::string::npos);
    EXPECT_NE(text.find("**Loses 4.48 ms per step (16.0 %)**; at most 16.0 % of a step comes back, if the host"),
              std::string::npos);
    EXPECT_NE(diagnosis_markdown(healthy_diagnosis()).find("a clean bill"), std::string::npos);
    EXPECT_NE(diagnosis_markdown({}).find("No training steps on a GPU were found"), std::string::npos);
}

TEST(PhraseParts, BackticksInPairsMakeCode) {
    const auto joined = [](std::string_view text) {
        std::string out;
        for (const PhrasePart& part : phrase_parts(text)) out += (part.code ? "<" : "(") + part.text + (part.code ? ">" : ")");
        return out;
    };
    EXPECT_EQ(joined(""), "");
    EXPECT_EQ(joined("plain"), "(plain)");
    EXPECT_EQ(joined("use `a` or `b`."), "(use )<a>( or )<b>(.)");
    EXPECT_EQ(joined("`a`"), "<a>");
    EXPECT_EQ(joined("odd ` one"), "(odd ` one)");
    EXPECT_EQ(joined("`a` odd ` one"), "<a>( odd ` one)");
}

TEST(PlaceText, SaysWhatIsKnown) {
    EXPECT_EQ(place_text(std::nullopt), "place unknown");
    EXPECT_EQ(place_text(diagnose::Frame{"a.py", 3, "f", false}), "a.py:3 in f");
    EXPECT_EQ(place_text(diagnose::Frame{"a.py", 0, "", false}), "a.py");
    EXPECT_EQ(place_text(diagnose::Frame{"", 0, "aten::mm", true}), "aten::mm");
    EXPECT_EQ(place_text(diagnose::Frame{"lib.so", 0, "run", true}), "run in lib.so");
    EXPECT_EQ(place_text(diagnose::Frame{}), "place unknown");
    diagnose::Finding finding;
    EXPECT_EQ(place_text(finding), "place unknown");
    finding.kind = diagnose::Kind::kSmallBatch;
    EXPECT_EQ(place_text(finding), "the whole program");
}

TEST(DiagnosisMarkdown, HostileNamesStayText) {
    EXPECT_EQ(markdown_text("<img src=x> [a](b) |c| *d*"), "&lt;img src=x&gt; \\[a\\](b) \\|c\\| \\*d\\*");
    EXPECT_EQ(markdown_text("1. first"), "&#8203;1. first");
    EXPECT_EQ(markdown_text("it's"), "it&#39;s");
    EXPECT_EQ(markdown_text("# no heading\n# nor here"), "\\# no heading \\# nor here");
    EXPECT_EQ(markdown_code("a`b</code>|c_d"), "<code>a&#96;b&lt;/code&gt;&#124;c&#95;d</code>");
    diagnose::Diagnosis diagnosis = sick_diagnosis();
    diagnosis.title = "x\n# owned\n<script>alert(1)</script>";
    const std::string text = diagnosis_markdown(diagnosis);
    EXPECT_EQ(count_of(text, "<script"), 0u);
    EXPECT_EQ(count_of(text, "\n# owned"), 0u);
}

}  // namespace
}  // namespace millrace::report
