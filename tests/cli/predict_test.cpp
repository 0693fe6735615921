// Predictions of a run for other data: what is written, and that it is what eval scores.
#include <cmath>
#include <sstream>

#include "cli/own_data.h"
#include "io/array_file.h"
#include "io/file.h"
#include "io/table_file.h"

namespace millrace::cli {
namespace {

class Predict : public OwnData {
protected:
    [[nodiscard]] io::TextTable table(const std::string& name) const {
        auto read = io::read_table(folder_ / name);
        EXPECT_TRUE(read.ok()) << (read.ok() ? "" : read.error().text());
        return read.ok() ? std::move(read).value() : io::TextTable{};
    }
    [[nodiscard]] std::string text(const std::string& name) const {
        const auto read = io::read_text(folder_ / name);
        EXPECT_TRUE(read.ok()) << name;
        return read.ok() ? *read : "";
    }
    /// Predicts and expects that it succeeds.
    Said predicted(const std::string& run, const std::vector<std::string>& inputs, const std::string& out,
                   const std::vector<std::string>& more = {}) const {
        std::vector<std::string> words{"predict", path(run)};
        for (const std::string& input : inputs) words.push_back(path(input));
        words.insert(words.end(), {"--out", path(out), "--device", "cpu"});
        words.insert(words.end(), more.begin(), more.end());
        Said said = call(words);
        EXPECT_EQ(said.status, 0) << said.err;
        return said;
    }
    [[nodiscard]] Said refused(const std::string& input, const std::string& out = "no.csv") const {
        const Said said = call({"predict", path("run"), path(input), "--out", path(out)});
        EXPECT_FALSE(std::filesystem::exists(folder_ / out));
        return said;
    }
    [[nodiscard]] Json evaluated(const std::string& run, const std::string& data) const {
        const Said said = call({"eval", path(run), "--data", path(data), "--device", "cpu", "--json"});
        EXPECT_EQ(said.status, 0) << said.err;
        return said.status == 0 ? base::json_or_throw(said.out) : Json();
    }
    static double number(std::string_view cell) { return std::stod(std::string(cell)); }

    /// A folder whose training and test files hold the same rows: town, area, price, size.
    void write_houses(const std::string& below, int rows) const {
        std::string all = "town,area,price,size\n";
        for (int i = 0; i < rows; ++i)
            all += std::string(i % 3 == 0 ? "Rome," : "Oslo,") + std::to_string(i * 37 % 100) + "," +
                   std::to_string(1000 * (i * 37 % 100) + (i % 3 == 0 ? 50000 : 0)) +
                   (i * 37 % 100 > 60   ? ",large\n"
                    : i * 37 % 100 > 20 ? ",usual\n"
                                        : ",small\n");
        std::filesystem::create_directories(folder_ / below);
        write(below + "/train.csv", all);
        write(below + "/test.csv", all);
    }
};

constexpr const char* kShallow =
    "[model]\nname = \"shallow\"\npreset = \"debug\"\nwidths = [16]\ndropout = 0.0\n[train]\nbatch = 16\n";

TEST_F(Predict, PicturesWithoutClassesHaveTheirFileAndProbabilities) {
    if (!io::can_read_pictures()) GTEST_SKIP() << "this build reads no pictures";
    write_pictures("photos", 30);
    trained(kCnn, "photos", "run", {"train.epochs=15", "optim.lr=3e-3"});
    std::filesystem::create_directories(folder_ / "new/deeper/still/more");
    for (int i = 0; i < 60; ++i)
        std::filesystem::copy(folder_ / (i % 2 == 0 ? "photos/red" : "photos/green") / (std::to_string(i) + ".png"),
                              folder_ / (i < 30 ? "new" : "new/deeper/still/more") /
                                  (i % 2 == 0 ? "r" + std::to_string(i) + ".png" : "g" + std::to_string(i) + ".png"));
    write("new/broken, \"b\".png", "no picture");
    write("new/.hidden.png", "not looked at");
    write("new/readme.txt", "not looked at");
    const Said said = predicted("run", {"new"}, "out.csv", {"--batch", "7"});
    EXPECT_NE(said.out.find("61 pictures in "), std::string::npos) << said.out;
    EXPECT_NE(said.out.find("1 of them without an answer; wrote "), std::string::npos) << said.out;
    EXPECT_NE(said.err.find("broken, \"b\".png "), std::string::npos) << said.err;
    const io::TextTable out = table("out.csv");
    ASSERT_EQ(out.names, (std::vector<std::string>{"file", "class", "p_green", "p_red", "note"}));
    ASSERT_EQ(out.rows(), 61u);
    int right = 0, broken = 0;
    for (std::size_t row = 0; row < out.rows(); ++row) {
        const std::string file(out.at(row, 0));
        if (row > 0) {
            EXPECT_LT(std::string(out.at(row - 1, 0)), file);
        }
        if (file.find("broken") != std::string::npos) {
            ++broken;
            for (int column = 1; column < 4; ++column) EXPECT_EQ(out.at(row, static_cast<std::size_t>(column)), "");
            EXPECT_NE(out.at(row, 4), "");
            continue;
        }
        EXPECT_EQ(out.at(row, 4), "");
        const double green = number(out.at(row, 2)), red = number(out.at(row, 3));
        EXPECT_NEAR(green + red, 1, 1e-6);
        EXPECT_EQ(out.at(row, 1), red > green ? "red" : "green");
        right += std::filesystem::path(file).filename().string()[0] == (red > green ? 'r' : 'g') ? 1 : 0;
    }
    EXPECT_EQ(broken, 1);
    EXPECT_GE(right, 54);
    // Single files, in the order given; other rows at once change nothing.
    predicted("run", {"new/r8.png", "new/g1.png"}, "two.csv");
    const io::TextTable two = table("two.csv");
    ASSERT_EQ(two.rows(), 2u);
    EXPECT_EQ(two.at(0, 0), path("new/r8.png"));
    for (std::size_t row = 0; row < out.rows(); ++row)
        for (std::size_t other = 0; other < 2; ++other)
            if (out.at(row, 0) == two.at(other, 0)) {
                EXPECT_NEAR(number(out.at(row, 3)), number(two.at(other, 3)), 1e-6);
            }

    const Said none = refused("new/broken, \"b\".png");  // named in a warning first
    EXPECT_EQ(none.status, 2);
    EXPECT_NE(none.err.find("millrace: "), std::string::npos);
    EXPECT_NE(none.err.find("none of the 1 pictures has an answer"), std::string::npos) << none.err;
    std::filesystem::create_directories(folder_ / "empty");
    expect_refusal(refused("empty"), {"empty: holds nothing that is known", "PNG, JPEG"});
    expect_refusal(refused("absent"), {"absent: no such file or folder"});
    write("t.csv", "a,b\n1,2\n");
    expect_refusal(refused("t.csv"), {"t.csv: holds a table; the run was trained on other data"});
    expect_refusal(refused("new", "out.txt"), {".csv, .jsonl (JSON lines) or .npy would be right"});
    expect_refusal(refused("new", "absent/out.csv"), {"absent"});
    expect_refusal(call({"predict", path("run"), path("new"), "--out", path("no.csv"), "--batch", "-1"}), {"eval.batch"});
    expect_refusal(call({"predict", path("new"), path("new"), "--out", path("no.csv")}), {"new"});
    expect_refusal(call({"predict", path("run"), path("t.csv"), "--out", path("t.csv")}), {"INPUT and --out name the same file"});
    expect_refusal(call({"predict", path("run"), "--out", path("no.csv")}), {"INPUT"});
    EXPECT_EQ(text("t.csv"), "a,b\n1,2\n");
}

TEST_F(Predict, ATableOfNumbersIsPredictedInItsOwnUnit) {
    write_houses("houses", 120);
    trained(kShallow, "houses", "run", {"train.epochs=15", "data.target=price", "data.ignore=size", "optim.lr=1e-2"});
    const Json scores = evaluated("run", "houses");
    predicted("run", {"houses/test.csv"}, "out.csv", {"--batch", "50"});
    const io::TextTable out = table("out.csv"), right = table("houses/test.csv");
    ASSERT_EQ(out.names, (std::vector<std::string>{"row", "price"}));
    ASSERT_EQ(out.rows(), 120u);
    double error = 0;
    for (std::size_t row = 0; row < out.rows(); ++row) {
        EXPECT_EQ(out.at(row, 0), std::to_string(row));
        error += std::abs(number(out.at(row, 1)) - number(right.at(row, 2))) / 120;
    }
    EXPECT_NEAR(error, scores.at("mean_absolute_error").get<double>(), 1e-4 * error);
    EXPECT_LT(error, 15000);
    // Columns are found by name, answers need not be there, and what was never seen is the first of its words.
    write("bare.csv", "area,town\n37,Oslo\n74,Oslo\n11,Bern\n,Rome\n");
    predicted("run", {"bare.csv"}, "bare-out.csv");
    const io::TextTable bare = table("bare-out.csv");
    ASSERT_EQ(bare.rows(), 4u);
    for (std::size_t row = 0; row < 2; ++row)
        EXPECT_NEAR(number(bare.at(row, 1)), number(out.at(row + 1, 1)), 1e-3) << "the same row among others";
    // Several inputs count on.
    predicted("run", {"bare.csv", "houses/test.csv"}, "both.csv");
    const io::TextTable both = table("both.csv");
    ASSERT_EQ(both.rows(), 124u);
    EXPECT_EQ(both.at(123, 0), "123");
    EXPECT_NEAR(number(both.at(123, 1)), number(out.at(119, 1)), 1e-3);
    write("lacks.csv", "town,price\nRome,1\n");
    expect_refusal(refused("lacks.csv"), {"lacks.csv: lacks the column \"area\" of the training data; it has town, price"});
    write("none.csv", "town,area\n");
    expect_refusal(refused("none.csv"), {"none.csv: is a table without rows"});
    write("x.txt", "words");
    expect_refusal(refused("x.txt"), {"a table (.csv, .tsv) would be right"});
}

TEST_F(Predict, EveryFormHoldsTheSameClasses) {
    write_houses("houses", 100);
    trained(kShallow, "houses", "run",
            {"train.epochs=10", "data.target=size", "data.ignore=price", "optim.lr=1e-2", "members=2", "seed=3"});
    const Json scores = evaluated("run", "houses");
    for (const char* out : {"out.csv", "out.jsonl", "out.npy"}) predicted("run", {"houses/test.csv"}, out);
    const io::TextTable out = table("out.csv"), right = table("houses/test.csv");
    ASSERT_EQ(out.names, (std::vector<std::string>{"row", "class", "p_large", "p_small", "p_usual", "spread"}));
    ASSERT_EQ(out.rows(), 100u);
    std::vector<Json> lines;
    std::istringstream read(text("out.jsonl"));
    for (std::string line; std::getline(read, line);) lines.push_back(base::json_or_throw(line));
    ASSERT_EQ(lines.size(), 100u);
    const std::string bytes = text("out.npy");
    const auto array = io::parse_npy(io::bytes_of(bytes), "out.npy");
    ASSERT_TRUE(array.ok()) << array.error().text();
    ASSERT_EQ(array->shape, (std::vector<std::uint64_t>{100, 3}));
    int spread = 0, hits = 0;
    for (std::size_t row = 0; row < 100; ++row) {
        double sum = 0;
        for (std::size_t c = 0; c < 3; ++c) {
            const double p = number(out.at(row, 2 + c));
            sum += p;
            EXPECT_NEAR(array->at(row * 3 + c), p, 1e-6);
            EXPECT_NEAR(lines[row].at(out.names[2 + c]).get<double>(), p, 1e-9);
        }
        EXPECT_NEAR(sum, 1, 1e-6);
        EXPECT_EQ(lines[row].at("row"), row);
        EXPECT_EQ(lines[row].at("class"), std::string(out.at(row, 1)));
        EXPECT_GE(number(out.at(row, 5)), 0);
        spread += number(out.at(row, 5)) > 1e-4 ? 1 : 0;
        hits += out.at(row, 1) == right.at(row, 3) ? 1 : 0;
    }
    EXPECT_GT(spread, 50) << "members start from other weights";
    double least = 1, most = 0;
    for (const Json& member : scores.at("members")) {
        least = std::min(least, member.at("accuracy").get<double>());
        most = std::max(most, member.at("accuracy").get<double>());
    }
    EXPECT_GE(hits / 100.0, least - 0.1);
    EXPECT_LE(hits / 100.0, most + 0.1);
}

constexpr const char* kWords =
    "[model]\nname = \"transformer\"\npreset = \"debug\"\n[data]\nlength = 16\nvocabulary = 16\n[train]\nbatch = 8\n";

std::string words(int count, int step, const std::string& seldom = "seldom ") {
    constexpr const char* kSome[] = {"one ", "two ", "three ", "four "};
    std::string text;
    for (int i = 0; i < count; ++i) text += i % 50 == 49 ? seldom : kSome[(i / 7 + i * step) % 4];
    return text;
}

TEST_F(Predict, ProbabilitiesOfTokensGiveThePerplexityOfEval) {
    write("all.txt", words(3000, 1));
    write("other.txt", words(701, 5, "unheard "));
    trained(kWords, "all.txt", "run", {"train.epochs=2", "data.scored_windows=3"});
    const Json scores = evaluated("run", "other.txt");
    EXPECT_NE(call({"eval", path("run"), "--data", path("other.txt")}).out.find("on 44 test windows of other.txt"),
              std::string::npos);
    EXPECT_EQ(scores.at("samples"), 44) << "all windows of 700 tokens";
    EXPECT_FALSE(scores.contains("unigram_perplexity")) << "there is no training part to count";
    EXPECT_GT(scores.at("unknown_share").get<double>(), 0.01);
    const Said said = predicted("run", {"other.txt"}, "out.csv", {"--batch", "5"});
    EXPECT_NE(said.out.find("701 tokens in "), std::string::npos) << said.out;
    const io::TextTable out = table("out.csv");
    ASSERT_EQ(out.names, (std::vector<std::string>{"position", "token", "probability"}));
    ASSERT_EQ(out.rows(), 701u);
    EXPECT_EQ(out.at(0, 2), "") << "nothing predicts the first token";
    double sum = 0;
    std::string text;
    for (std::size_t row = 0; row < out.rows(); ++row) {
        EXPECT_EQ(out.at(row, 0), std::to_string(row));
        text += std::string(out.at(row, 1)) + " ";
        if (row > 0) sum -= std::log(number(out.at(row, 2)));
    }
    EXPECT_TRUE(text.starts_with(words(40, 5))) << text;
    const double perplexity = scores.at("perplexity").get<double>();
    EXPECT_NEAR(std::exp(sum / 700), perplexity, 1e-4 * perplexity);
    predicted("run", {"other.txt"}, "out.npy");
    const std::string bytes = this->text("out.npy");
    const auto array = io::parse_npy(io::bytes_of(bytes), "out.npy");
    ASSERT_TRUE(array.ok()) << array.error().text();
    ASSERT_EQ(array->shape, std::vector<std::uint64_t>{701});
    EXPECT_TRUE(std::isnan(array->at(0)));
    EXPECT_NEAR(array->at(700), number(out.at(700, 2)), 1e-6);

    // The run's own text keeps its parts wherever it lies; a folder of texts is predicted one after the other.
    write("moved.txt", words(3000, 1));
    EXPECT_EQ(evaluated("run", "moved.txt").at("samples"), 3);
    std::filesystem::create_directories(folder_ / "texts");
    for (const char* name : {"train.txt", "valid.txt", "test.txt"}) write(std::string("texts/") + name, words(60, 5));
    predicted("run", {"texts"}, "texts.csv");
    const io::TextTable three = table("texts.csv");
    ASSERT_EQ(three.rows(), 180u);
    for (const std::size_t first : {0u, 60u, 120u}) EXPECT_EQ(three.at(first, 2), "");
    EXPECT_NEAR(number(three.at(150, 2)), number(out.at(30, 2)), 1e-5);
    write("one.txt", "one");
    expect_refusal(refused("one.txt"), {"one.txt", "has 1 tokens; at least 2 are needed"});
    write("broken.txt", "one two \xff");
    expect_refusal(refused("broken.txt"), {"broken.txt:1", "is not UTF-8"});
    expect_refusal(refused("absent.txt"), {"absent.txt"});
    write("t.csv", "a,b\n1,2\n");
    expect_refusal(refused("t.csv"), {"t.csv: holds a table; text would be right"});
}

TEST_F(Predict, MembersOfALanguageModelHaveASpread) {
    write("all.txt", words(2000, 1));
    trained(kWords, "all.txt", "run", {"train.epochs=1", "members=2", "seed=5"});
    predicted("run", {"all.txt"}, "out.jsonl");
    std::istringstream read(text("out.jsonl"));
    std::string line;
    std::getline(read, line);
    EXPECT_EQ(base::json_or_throw(line),
              base::json_or_throw(R"({"position": 0, "token": "one", "probability": null, "spread": null})"));
    int different = 0;
    while (std::getline(read, line)) {
        const Json row = base::json_or_throw(line);
        EXPECT_GT(row.at("probability").get<double>(), 0);
        EXPECT_LE(row.at("spread").get<double>(), row.at("probability").get<double>() + 1e-8) << "two numbers above 0";
        different += row.at("spread").get<double>() > 1e-5 ? 1 : 0;
    }
    EXPECT_GT(different, 1000);
}

}  // namespace
}  // namespace millrace::cli
