/* pair_dates.c: dates as four languages write them, in a dozen styles each, and their ISO 8601 form.
 *
 * Names and abbreviations are those of the Unicode CLDR. No two styles say different dates in the same characters: numbers stand day first, or year first. */
#include "pair_task.h"

enum { FIRST_YEAR = 1900, YEARS = 200, STYLES = 12 };

/* %A weekday, %a its abbreviation; %B month, %b its abbreviation, %m its number, %M with two digits; %d day, %D with two digits, %o as an ordinal; %Y year. */
typedef struct language {
  const char *months[12], *short_months[12], *weekdays[7], *short_weekdays[7]; /* weekdays from Monday on */
  const char *(*ordinal)(int64_t day);                                         /* what stands behind the number */
  const char *styles[STYLES];
} language;

static const char *english_ordinal(int64_t day) {
  static const char *const suffixes[] = {"th", "st", "nd", "rd"};
  return suffixes[day / 10 != 1 && day % 10 < 4 ? day % 10 : 0];
}

static const char *french_ordinal(int64_t day) { return day == 1 ? "er" : ""; }

// clang-format off
static const language languages[] = {
    {.months = {"January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November", "December"},
     .short_months = {"Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"},
     .weekdays = {"Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"},
     .short_weekdays = {"Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"},
     .ordinal = english_ordinal,
     .styles = {"%B %d, %Y", "%d %B %Y", "%b %d, %Y", "%o of %B %Y", "%A, %B %d, %Y", "%a %d %b %Y", "%B %o, %Y", "%Y/%M/%D", "%D-%b-%Y",
                "the %o of %B, %Y", "%A the %o of %B %Y", "%Y %B %d"}},
    {.months = {"Januar", "Februar", "März", "April", "Mai", "Juni", "Juli", "August", "September", "Oktober", "November", "Dezember"},
     .short_months = {"Jan.", "Feb.", "März", "Apr.", "Mai", "Juni", "Juli", "Aug.", "Sept.", "Okt.", "Nov.", "Dez."},
     .weekdays = {"Montag", "Dienstag", "Mittwoch", "Donnerstag", "Freitag", "Samstag", "Sonntag"},
     .short_weekdays = {"Mo.", "Di.", "Mi.", "Do.", "Fr.", "Sa.", "So."},
     .styles = {"%d. %B %Y", "%D.%M.%Y", "%d.%m.%Y", "%A, %d. %B %Y", "%a, %d. %b %Y", "den %d. %B %Y", "am %d. %B %Y",
                "%A, den %d. %B %Y", "%d. %b %Y", "am %A, dem %d. %B %Y", "der %d. %B %Y", "%D. %B %Y"}},
    {.months = {"janvier", "février", "mars", "avril", "mai", "juin", "juillet", "août", "septembre", "octobre", "novembre", "décembre"},
     .short_months = {"janv.", "févr.", "mars", "avr.", "mai", "juin", "juil.", "août", "sept.", "oct.", "nov.", "déc."},
     .weekdays = {"lundi", "mardi", "mercredi", "jeudi", "vendredi", "samedi", "dimanche"},
     .short_weekdays = {"lun.", "mar.", "mer.", "jeu.", "ven.", "sam.", "dim."},
     .ordinal = french_ordinal,
     .styles = {"%o %B %Y", "le %o %B %Y", "%A %o %B %Y", "le %A %o %B %Y", "%D/%M/%Y", "%d/%m/%Y", "%o %b %Y", "%a %o %b %Y",
                "le %D/%M/%Y", "%A, le %o %B %Y", "en date du %o %B %Y", "%D-%M-%Y"}},
    {.months = {"enero", "febrero", "marzo", "abril", "mayo", "junio", "julio", "agosto", "septiembre", "octubre", "noviembre", "diciembre"},
     .short_months = {"ene", "feb", "mar", "abr", "may", "jun", "jul", "ago", "sept", "oct", "nov", "dic"},
     .weekdays = {"lunes", "martes", "miércoles", "jueves", "viernes", "sábado", "domingo"},
     .short_weekdays = {"lun", "mar", "mié", "jue", "vie", "sáb", "dom"},
     .styles = {"%d de %B de %Y", "el %d de %B de %Y", "%A, %d de %B de %Y", "%A %d de %B de %Y", "%D/%M/%Y", "%d/%m/%Y", "%d %b %Y",
                "%a, %d %b %Y", "%d de %B del %Y", "el %A %d de %B de %Y", "%D-%M-%Y", "a %d de %B de %Y"}},
};
// clang-format on

typedef struct date {
  int64_t year, month, day; /* month and day from 1 */
} date;

static int64_t days_in(int64_t year, int64_t month) {
  static const int64_t days[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
  const bool leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
  return days[month - 1] + (month == 2 && leap);
}

/* From Monday = 0; counted from 1 January 1900, a Monday. */
static int64_t weekday_of(date at) {
  int64_t days = at.day - 1;
  for (int64_t year = FIRST_YEAR; year < at.year; year++) days += 337 + days_in(year, 2);
  for (int64_t month = 1; month < at.month; month++) days += days_in(at.year, month);
  return days % 7;
}

/* Where the digits of a field stand in the ISO form, and how many they are. */
typedef struct field {
  int64_t at, digits;
} field;

static const field year_field = {0, 4}, month_field = {5, 2}, day_field = {8, 2};

/* The digits of the source are those of the target, from the last on; a zero that the source lacks may come from any of them. */
static void write_digits(hd_draft *out, field f, int64_t number, int digits) {
  const int64_t begin = out->source.tokens;
  hd_write_number(&out->source, number, digits);
  const int64_t count = out->source.tokens - begin;
  for (int64_t i = 0; i < count; i++) hd_link(out, begin + i, f.at + f.digits - count + i, false);
  for (int64_t zero = 0; zero < f.digits - count; zero++)
    for (int64_t i = 0; i < count; i++) hd_link(out, begin + i, f.at + zero, true);
}

static void write_month(hd_draft *out, const char *name) {
  const int64_t begin = out->source.tokens;
  hd_write(&out->source, name);
  for (int64_t i = begin; i < out->source.tokens; i++)
    for (int64_t digit = 0; digit < month_field.digits; digit++) hd_link(out, i, month_field.at + digit, true);
}

static void write_field(hd_draft *out, const language *l, date at, char what) {
  switch (what) {
  case 'A': hd_write(&out->source, l->weekdays[weekday_of(at)]); break;
  case 'a': hd_write(&out->source, l->short_weekdays[weekday_of(at)]); break;
  case 'B': write_month(out, l->months[at.month - 1]); break;
  case 'b': write_month(out, l->short_months[at.month - 1]); break;
  case 'm': write_digits(out, month_field, at.month, 1); break;
  case 'M': write_digits(out, month_field, at.month, 2); break;
  case 'd': write_digits(out, day_field, at.day, 1); break;
  case 'D': write_digits(out, day_field, at.day, 2); break;
  case 'o':
    write_digits(out, day_field, at.day, 1);
    hd_write(&out->source, l->ordinal(at.day));
    break;
  default: write_digits(out, year_field, at.year, 4);
  }
}

static void make_date(const heed_pair_task *task, hd_dice *d, hd_draft *out) {
  (void)task;
  const language *l = &languages[hd_roll(d, HD_COUNT(languages))];
  const char *style = l->styles[hd_roll(d, STYLES)];
  date at = {.year = FIRST_YEAR + hd_roll(d, YEARS), .month = 1 + hd_roll(d, 12)};
  at.day = 1 + hd_roll(d, days_in(at.year, at.month));
  for (; *style; style++) {
    if (*style != '%') hd_write(&out->source, (char[]){*style, 0});
    else write_field(out, l, at, *++style);
  }
  hd_write_number(&out->target, at.year, 4);
  hd_write(&out->target, "-");
  hd_write_number(&out->target, at.month, 2);
  hd_write(&out->target, "-");
  hd_write_number(&out->target, at.day, 2);
  memcpy(out->question, out->target.text, (size_t)out->target.length + 1);
}

const hd_pair_kind hd_pair_dates = {"dates", "char", 0, 0, 0, false, make_date};
