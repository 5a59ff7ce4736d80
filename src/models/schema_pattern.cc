#include "models/schema_pattern.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"
#include "base/status_macros.h"

namespace everwarm::models {
namespace {

// The library recurses for each.
constexpr int kMaxGroups = 50;
constexpr uint32_t kLastCodePoint = 0x10FFFF;

// Code points as ranges, in order, none touching the next.
class CodePoints {
 public:
  using Range = std::pair<uint32_t, uint32_t>;
  CodePoints() = default;
  explicit CodePoints(std::vector<Range> ranges) : ranges_(std::move(ranges)) {
    Tidy();
  }

  void Add(const CodePoints& more) {
    ranges_.insert(ranges_.end(), more.ranges_.begin(), more.ranges_.end());
    Tidy();
  }
  CodePoints Complement() const {
    CodePoints others;
    uint32_t next = 0;
    for (const auto& [first, last] : ranges_) {
      if (first > next) {
        others.ranges_.push_back({next, first - 1});
      }
      next = last + 1;
    }
    if (next <= kLastCodePoint) {
      others.ranges_.push_back({next, kLastCodePoint});
    }
    return others;
  }
  CodePoints Without(const CodePoints& others) const {
    CodePoints rest = Complement();
    rest.Add(others);
    return rest.Complement();
  }
  bool empty() const { return ranges_.empty(); }
  const std::vector<Range>& ranges() const { return ranges_; }
  friend bool operator==(const CodePoints&, const CodePoints&) = default;

 private:
  void Tidy() {
    std::sort(ranges_.begin(), ranges_.end());
    std::vector<Range> tidy;
    for (const Range& range : ranges_) {
      if (!tidy.empty() && range.first <= tidy.back().second + 1) {
        tidy.back().second = std::max(tidy.back().second, range.second);
      } else {
        tidy.push_back(range);
      }
    }
    ranges_ = std::move(tidy);
  }

  std::vector<Range> ranges_;
};

// What a JSON string holds as an escape or not at all.
CodePoints Escaped() {
  return CodePoints(
      {{0, 0x1F}, {'"', '"'}, {'\\', '\\'}, {0x7F, 0x7F}, {0xD800, 0xDFFF}});
}

CodePoints LineEnds() {
  return CodePoints({{'\n', '\n'}, {'\r', '\r'}, {0x2028, 0x2029}});
}

// \d, \w and \s as ECMA-262 has them.
std::optional<CodePoints> ClassOf(char letter) {
  switch (letter) {
    case 'd':
      return CodePoints({{'0', '9'}});
    case 'w':
      return CodePoints({{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}});
    case 's':
      return CodePoints({{0x09, 0x0D},
                         {0x20, 0x20},
                         {0xA0, 0xA0},
                         {0x1680, 0x1680},
                         {0x2000, 0x200A},
                         {0x2028, 0x2029},
                         {0x202F, 0x202F},
                         {0x205F, 0x205F},
                         {0x3000, 0x3000},
                         {0xFEFF, 0xFEFF}});
    default:
      return std::nullopt;
  }
}

std::string WrittenInClass(uint32_t code_point) {
  if (code_point < 0x80) {
    const char c = static_cast<char>(code_point);
    return absl::ascii_isalnum(static_cast<unsigned char>(c))
               ? std::string(1, c)
               : absl::StrFormat("\\x%02X", code_point);
  }
  return absl::StrFormat("\\U%08X", code_point);
}

std::string Written(const CodePoints& set) {
  std::string text = "[";
  for (const auto& [first, last] : set.ranges()) {
    absl::StrAppend(&text, WrittenInClass(first));
    if (last > first) {
      absl::StrAppend(&text, "-", WrittenInClass(last));
    }
  }
  return text + "]";
}

bool MeansItself(uint32_t code_point) {
  return code_point >= 0x20 && code_point < 0x7F &&
         std::string_view("\"\\^$.[]{}()|*+?")
                 .find(static_cast<char>(code_point)) == std::string_view::npos;
}

absl::Status Invalid(absl::string_view why) {
  return absl::InvalidArgumentError(why);
}

class PatternReader {
 public:
  explicit PatternReader(std::string_view pattern) : text_(pattern) {}

  absl::StatusOr<std::string> Read() {
    while (at_ < text_.size()) {
      EW_RETURN_IF_ERROR(ReadNext());
    }
    if (depth_ > 0) {
      return Invalid("a group is not closed");
    }
    EW_RETURN_IF_ERROR(unsupported_);
    // A pattern may match anywhere in a string. Of alternatives with different
    // anchors, only strings that are the alternative and no more are allowed.
    const std::string anything =
        Written(CodePoints().Complement().Without(Escaped())) + "*";
    std::string all = alternatives_ ? absl::StrCat("(", body_, ")") : body_;
    if (begins_ && ends_) {
      return absl::StrCat("^", body_, "$");
    }
    return absl::StrCat("^", begins_ ? "" : anything, all,
                        ends_ || (!begins_ && body_.empty()) ? "" : anything,
                        "$");
  }

 private:
  bool Sees(std::string_view what) const {
    return text_.substr(at_).substr(0, what.size()) == what;
  }
  bool Takes(std::string_view what) {
    if (!Sees(what)) {
      return false;
    }
    at_ += what.size();
    return true;
  }

  // What is read after it may yet show that it is no regular expression.
  void NoteUnsupported(absl::string_view why) {
    if (unsupported_.ok()) {
      unsupported_ = absl::UnimplementedError(why);
    }
  }

  absl::Status ReadNext() {
    if (Takes("^")) {
      if (depth_ > 0 || body_.size() != alternative_begin_) {
        NoteUnsupported("an anchor inside of it");
      }
      begins_ = true;
      return absl::OkStatus();
    }
    if (Takes("$")) {
      if (depth_ > 0 || (at_ < text_.size() && !Sees("|"))) {
        NoteUnsupported("an anchor inside of it");
      }
      ends_ = true;
      return absl::OkStatus();
    }
    if (Takes("(")) {
      return BeginGroup();
    }
    if (Takes(")")) {
      if (depth_ == 0) {
        return Invalid("a group is closed that was not opened");
      }
      --depth_;
      body_ += ")";
      may_repeat_ = true;
      return absl::OkStatus();
    }
    if (Takes("|")) {
      body_ += "|";
      may_repeat_ = false;
      if (depth_ == 0) {
        alternatives_ = true;
        alternative_begin_ = body_.size();
      }
      return absl::OkStatus();
    }
    if (Sees("*") || Sees("+") || Sees("?")) {
      return Repeat(std::string(1, text_[at_++]));
    }
    if (Takes("{")) {
      return ReadCount();
    }
    return ReadCharacters();
  }

  absl::Status BeginGroup() {
    if (!Takes("?:") && Takes("?")) {
      NoteUnsupported("a group that begins with '(?'");
    }
    if (++depth_ > kMaxGroups) {
      return absl::UnimplementedError(
          absl::StrCat("more than ", kMaxGroups, " groups inside one another"));
    }
    body_ += "(";
    may_repeat_ = false;
    return absl::OkStatus();
  }

  absl::Status Repeat(const std::string& how) {
    if (!may_repeat_) {
      return Invalid("there is nothing to repeat");
    }
    may_repeat_ = false;
    // As few as possible, or as many: the same strings.
    Takes("?");
    body_ += how;
    return absl::OkStatus();
  }

  absl::Status ReadCount() {
    std::optional<uint32_t> least = ReadNumber();
    std::optional<uint32_t> most = least;
    std::string how = absl::StrCat("{", least.value_or(0));
    if (Takes(",")) {
      most = ReadNumber();
      absl::StrAppend(&how, ",");
      if (most.has_value()) {
        absl::StrAppend(&how, *most);
      }
    }
    if (!least.has_value() || !Takes("}")) {
      NoteUnsupported("a '{' that begins no number of repetitions");
      return absl::OkStatus();
    }
    if (*least > most.value_or(*least)) {
      return Invalid("more repetitions at least than at most");
    }
    if (std::max(*least, most.value_or(0)) > kMaxRepetitions) {
      NoteUnsupported(
          absl::StrCat("more than ", kMaxRepetitions, " repetitions"));
    }
    return Repeat(how + "}");
  }

  // Beyond kMaxRepetitions it is some number that is.
  std::optional<uint32_t> ReadNumber() {
    std::optional<uint32_t> number;
    for (; at_ < text_.size() &&
           absl::ascii_isdigit(static_cast<unsigned char>(text_[at_]));
         ++at_) {
      number = std::min(
          number.value_or(0) * 10 + static_cast<uint32_t>(text_[at_] - '0'),
          kMaxRepetitions + 1);
    }
    return number;
  }

  // One character out of some.
  absl::Status ReadCharacters() {
    const size_t begin = at_;
    CodePoints set;
    if (Takes("[")) {
      EW_ASSIGN_OR_RETURN(set, ReadClass());
    } else if (Takes(".")) {
      set = LineEnds().Complement();
    } else if (Sees("\\")) {
      EW_ASSIGN_OR_RETURN(set, ReadEscape(/*in_class=*/false));
    } else {
      set = One(NextCodePoint());
    }
    const CodePoints written = set.Without(Escaped());
    if (written.empty()) {
      NoteUnsupported("a character that JSON writes as an escape");
    }
    const std::string_view as_it_is = text_.substr(begin, at_ - begin);
    const bool plain =
        written == set &&
        (as_it_is.size() == 1
             ? MeansItself(static_cast<unsigned char>(as_it_is[0]))
             : as_it_is[0] == '[' && as_it_is.find('\\') == as_it_is.npos &&
                   as_it_is[1] != '^' &&
                   std::all_of(as_it_is.begin(), as_it_is.end(),
                               [](char c) { return c >= 0x20; }));
    absl::StrAppend(&body_, plain ? std::string(as_it_is) : Written(written));
    may_repeat_ = true;
    return absl::OkStatus();
  }

  absl::StatusOr<CodePoints> ReadClass() {
    const bool others = Takes("^");
    CodePoints set;
    while (!Takes("]")) {
      EW_ASSIGN_OR_RETURN(CodePoints item, ReadClassItem());
      if (Sees("-") && at_ + 1 < text_.size() && text_[at_ + 1] != ']') {
        ++at_;
        EW_ASSIGN_OR_RETURN(const CodePoints end, ReadClassItem());
        if (!IsOne(item) || !IsOne(end) ||
            item.ranges()[0].first > end.ranges()[0].first) {
          return Invalid("a range of characters without two ends in order");
        }
        item = CodePoints({{item.ranges()[0].first, end.ranges()[0].first}});
      }
      set.Add(item);
    }
    return others ? set.Complement() : set;
  }

  absl::StatusOr<CodePoints> ReadClassItem() {
    if (at_ >= text_.size()) {
      return Invalid("a class of characters is not closed");
    }
    if (Sees("\\")) {
      return ReadEscape(/*in_class=*/true);
    }
    return One(NextCodePoint());
  }

  // Requires: at a backslash.
  absl::StatusOr<CodePoints> ReadEscape(bool in_class) {
    if (++at_ >= text_.size()) {
      return Invalid("a backslash at its end");
    }
    const char letter = text_[at_];
    if (!absl::ascii_isalnum(static_cast<unsigned char>(letter))) {
      return One(NextCodePoint());
    }
    ++at_;
    if (std::optional<CodePoints> set = ClassOf(letter)) {
      return *std::move(set);
    }
    if (std::optional<CodePoints> set =
            ClassOf(absl::ascii_tolower(static_cast<unsigned char>(letter)))) {
      return set->Complement();
    }
    if (letter == 'x' || letter == 'u') {
      return ReadHex(letter == 'x' ? 2 : 4);
    }
    if (std::string_view("tnrfv0").find(letter) != std::string_view::npos ||
        (letter == 'b' && in_class)) {
      return One(0);  // JSON escapes them all.
    }
    NoteUnsupported(
        absl::StrCat("the escape '\\", std::string(1, letter), "'"));
    return One(static_cast<unsigned char>(letter));
  }

  absl::StatusOr<CodePoints> ReadHex(size_t digits) {
    uint32_t code_point = 0;
    for (size_t i = 0; i < digits; ++i, ++at_) {
      if (at_ >= text_.size() ||
          !absl::ascii_isxdigit(static_cast<unsigned char>(text_[at_]))) {
        return Invalid(absl::StrCat("an escape of a character without ", digits,
                                    " hexadecimal digits"));
      }
      const char c =
          absl::ascii_tolower(static_cast<unsigned char>(text_[at_]));
      code_point = code_point * 16 +
                   static_cast<uint32_t>(c <= '9' ? c - '0' : c - 'a' + 10);
    }
    return One(code_point);
  }

  // Requires: at a character. What is not UTF-8 is taken byte by byte.
  uint32_t NextCodePoint() {
    const auto first = static_cast<unsigned char>(text_[at_++]);
    const int more = first >= 0xF0 ? 3 : first >= 0xE0 ? 2 : first >= 0xC0;
    uint32_t code_point = more == 0 ? first : first & (0x3Fu >> more);
    for (int i = 0; i < more && at_ < text_.size(); ++i, ++at_) {
      code_point =
          code_point << 6 | (static_cast<unsigned char>(text_[at_]) & 0x3Fu);
    }
    return std::min(code_point, kLastCodePoint);
  }

  static CodePoints One(uint32_t code_point) {
    return CodePoints({{code_point, code_point}});
  }
  static bool IsOne(const CodePoints& set) {
    return set.ranges().size() == 1 &&
           set.ranges()[0].first == set.ranges()[0].second;
  }

  const std::string_view text_;
  size_t at_ = 0;
  int depth_ = 0;
  bool begins_ = false;
  bool ends_ = false;
  // Outside of groups.
  bool alternatives_ = false;
  size_t alternative_begin_ = 0;
  bool may_repeat_ = false;
  std::string body_;
  absl::Status unsupported_;
};

}  // namespace

absl::StatusOr<std::string> FollowablePattern(std::string_view pattern) {
  return PatternReader(pattern).Read();
}

}  // namespace everwarm::models
