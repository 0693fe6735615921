// What `millrace record` tells of the number of steps.

#include <fstream>
#include <optional>

#include "cli/record_folder.h"

namespace millrace::cli {
namespace {

class RecordSteps : public Record {
protected:
    /// A module `turns` of the program, beside an optimizer.
    void write_turns(const std::string& text) const {
        std::filesystem::create_directories(folder_ / "torch/optim");
        std::ofstream(path("torch/optim/adamw.py")) << "import ctypes\n"
                                                       "def step(cuda, given):\n"
                                                       "    for _ in range(3):\n"
                                                       "        cuda.mock_launch(0, 12, 256, given, ctypes.c_uint64(0))\n";
        std::ofstream(path("turns.py")) << "import ctypes, os, sys, time\n"
                                           "time.sleep(0.3)\n"
                                           "sys.path.insert(0, os.path.join(os.path.dirname(__file__), 'torch/optim'))\n"
                                           "import adamw\n"
                                        << text;
    }
    /// The number it tells; none where it cannot.
    std::optional<double> told(const Words& command) const {
        const Said said = record(command, {}, plain({"PYTHONPATH=" + folder_.string()}));
        EXPECT_EQ(said.status, 0) << said.err;
        if (said.err.find("  cannot tell how many steps: ") != std::string::npos) return std::nullopt;
        const std::size_t at = said.err.find("  about ");
        EXPECT_NE(at, std::string::npos) << said.err;
        return at == std::string::npos ? -1 : std::stod(said.err.substr(at + 8));
    }
};

TEST_F(RecordSteps, AreTurnsOfTheLoopThatCallsTheOptimizerAndNoEvaluations) {
    write_turns(
        "def turn(number, names):\n"
        "    for time in range(8 + number % 3):\n"
        "        names['forward']()\n"
        "    names['read_loss']()\n"
        "    given = (ctypes.c_void_p * 2)(*(ctypes.addressof(names[each]) for each in ('weights', 'scale')))\n"
        "    if number % 100 == 51:\n"
        "        for batch in range(40):\n"
        "            names['forward']()\n"
        "            names['read_loss']()\n"
        "    if number % 2:\n"
        "        adamw.step(names['cuda'], given)\n");
    EXPECT_NEAR(told(script(600, "", "__import__('turns').turn(number, globals())")).value_or(-1), 300, 6)
        << "gradients of two batches are a step, its inner loop and an evaluation are none";
    contents();
    const auto* loops = reader_->loops().of(path("train.py"), "train_loop");
    ASSERT_NE(loops, nullptr);
    EXPECT_EQ(loops->size(), 1u);
    const Said diagnosed = run(folder_.string(), {"diagnose", path("run"), "--json"}, plain());
    EXPECT_NE(diagnosed.out.find("\"step_ms\""), std::string::npos);
}

TEST_F(RecordSteps, AreCountedFromEachPlaceThatTrainsAndNotInTheEvaluationBeforeThem) {
    write_turns(
        "def batches(names, count, given):\n"
        "    for number in range(count):\n"
        "        for layer in range(8):\n"
        "            names['forward']()\n"
        "        names['read_loss']()\n"
        "        if given:\n"
        "            adamw.step(names['cuda'], given)\n"
        "        time.sleep(0.004)\n");
    const std::string then =
        "turns = __import__('turns')\n"
        "given = (ctypes.c_void_p * 2)(ctypes.addressof(weights), ctypes.addressof(scale))\n"
        "turns.batches(globals(), 200, None)\n"
        "turns.batches(globals(), 500, given)\n"
        "turns.batches(globals(), 150, given)\n";
    // Where a window that nothing ends has used up what windows may cost it cannot tell, but is not wrong.
    EXPECT_NEAR(told(script(0, then)).value_or(650), 650, 13);
}

TEST_F(RecordSteps, AreNotToldWhereACallMayBeAnEvaluations) {
    // To look where each of 61 launches is made would take more than half a per cent of a step.
    const Said said = record(script(600, "", "[forward() for _ in range(60)], launch(1)"));
    ASSERT_EQ(said.status, 0) << said.err;
    EXPECT_EQ(said.err.find("about "), std::string::npos) << said.err;
    EXPECT_NE(said.err.find("cannot tell how many steps: "), std::string::npos) << said.err;
}

}  // namespace
}  // namespace millrace::cli
