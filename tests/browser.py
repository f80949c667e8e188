"""The browser that the page tests share."""

import shutil

import pytest


def started():
    """Chromium without a window, for a whole module; quit it in the end."""
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    chromium, driver = shutil.which("chromium") or shutil.which("chromium-browser"), shutil.which("chromedriver")
    if not chromium or not driver:
        pytest.fail("needs Chromium and its driver: apt-get install chromium chromium-driver", pytrace=False)
    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--window-size=1280,1000"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    return webdriver.Chrome(options=options, service=Service(driver))


def find(browser, selector):
    return browser.find_element("css selector", selector)


def all_of(browser, selector):
    return browser.find_elements("css selector", selector)


def count(browser, selector):
    return browser.execute_script("return document.querySelectorAll(arguments[0]).length", selector)


def wait(browser, condition):
    from selenium.webdriver.support.wait import WebDriverWait

    return WebDriverWait(browser, 10).until(lambda _: condition())
